//! The indexes of a described table, for `design::capacity`, which computes the cost of a write in
//! each index.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, KeySchemaElement, KeyType, Projection as SdkProjection, ProjectionType,
    TableDescription,
};
use design::capacity::{IndexContent, IndexShape};

/// Returns all indexes of a table, global and local ones.
pub(crate) fn of_table(table: &TableDescription) -> Vec<IndexShape> {
    let types = table.attribute_definitions();
    let global = table
        .global_secondary_indexes()
        .iter()
        .map(|index| shape(index.index_name(), index.key_schema(), index.projection(), types));
    let local = table
        .local_secondary_indexes()
        .iter()
        .map(|index| shape(index.index_name(), index.key_schema(), index.projection(), types));
    global.chain(local).collect()
}

fn shape(
    name: Option<&str>,
    keys: &[KeySchemaElement],
    projection: Option<&SdkProjection>,
    types: &[AttributeDefinition],
) -> IndexShape {
    let type_of = |name: &str| {
        let found = types.iter().find(|found| found.attribute_name() == name);
        found.map_or("", |found| found.attribute_type().as_str()).to_owned()
    };
    let mut keys: Vec<_> = keys.iter().collect();
    keys.sort_by_key(|key| key.key_type() != &KeyType::Hash);
    let keys = keys.into_iter().map(|key| key.attribute_name().to_owned());
    let keys = keys.map(|key| (key.clone(), type_of(&key))).collect();
    let content = match projection.and_then(SdkProjection::projection_type) {
        Some(ProjectionType::All) => IndexContent::All,
        _ => IndexContent::Names(
            projection.map(|some| some.non_key_attributes().to_vec()).unwrap_or_default(),
        ),
    };
    IndexShape { name: name.unwrap_or_default().to_owned(), keys, content }
}
