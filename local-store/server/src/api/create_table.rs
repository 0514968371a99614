//! `CreateTable`: a new table, which is there when the answer is sent.
//!
//! Indexes are not supported yet: asking for one is an error.

use std::fmt;

use model::key::{KeyAttribute, KeyAttributeType, KeySchema};
use model::limits::{KEY_ATTRIBUTE_NAME_BYTES_MAX, TABLES_MAX};
use partition::{Billing, Command, CreateTable, Reply, Statistics};

use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::table_description::description_member;
use super::table_settings::{
    TableSettings, check_supported, stream_label, throughput_missing, throughput_not_allowed,
};
use super::tables;
use crate::store::Store;

/// An element of `AttributeDefinitions` or of `KeySchema`: a name, and its type or its role.
struct Element<'j> {
    name: Option<&'j str>,
    kind: Option<&'j str>,
}

/// Elements of a key schema at most: partition key and sort key.
const KEY_SCHEMA_ELEMENTS_MAX: usize = 2;

pub(super) async fn create_table(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let name = parameters.string("TableName")?;
    let definitions = read_elements(parameters, "AttributeDefinitions", "AttributeType")?;
    let key_schema = read_elements(parameters, "KeySchema", "KeyType")?;
    let settings = TableSettings::read(parameters)?;

    let Some(name) = name else {
        return Err(ApiError::validation(
            "The parameter 'TableName' is required but was not present in the request",
        ));
    };
    let mut constraints = Constraints::new();
    constrain_elements(
        &mut constraints,
        ("attributeDefinitions", "attributeType"),
        definitions.as_deref(),
        &["B", "N", "S"],
    );
    constraints.table_name(Some(name));
    settings.constrain(&mut constraints);
    constrain_elements(
        &mut constraints,
        ("keySchema", "keyType"),
        key_schema.as_deref(),
        &["HASH", "RANGE"],
    );
    constrain_key_schema(&mut constraints, key_schema.as_deref());
    constraints.finish()?;

    check_supported(parameters)?;
    let billing = billing(&settings)?;
    let key_schema =
        check_key_schema(&definitions.unwrap_or_default(), &key_schema.unwrap_or_default())?;
    let stream = match settings.stream()?.flatten() {
        Some(view_type) => Some((view_type, stream_label(store.now())?)),
        None => None,
    };
    let name = tables::name_of(store, name).ok_or_else(|| ApiError::table_not_found(name))?;
    let catalogue = store.catalogue();
    if catalogue.find(name).is_none() && catalogue.by_name().count() >= TABLES_MAX {
        return Err(ApiError::limit_exceeded(&format!(
            "Subscriber limit exceeded: there are {TABLES_MAX} tables already; delete one first"
        )));
    }
    let create = CreateTable {
        name: name.to_owned(),
        key_schema,
        billing,
        deletion_protection: settings.deletion_protection.unwrap_or(false),
        stream,
    };
    let replies = store.submit(vec![Command::CreateTable(create)]).await?;
    match replies.into_iter().next() {
        Some(Reply::Table(table)) => {
            let mut out = String::from("{");
            let empty = Statistics::default();
            description_member(&mut out, "TableDescription", store, &table, empty, "ACTIVE");
            out.push('}');
            Ok(out)
        }
        Some(Reply::TableExists) => Err(ApiError::table_exists(name)),
        _ => Err(ApiError::defect("CreateTable was not answered with a table")),
    }
}

fn read_elements<'j>(
    parameters: Parameters<'j>,
    list: &str,
    kind: &str,
) -> Result<Option<Vec<Element<'j>>>, ApiError> {
    let Some(elements) = parameters.structures(list)? else {
        return Ok(None);
    };
    let read = |element: Parameters<'j>| {
        Ok(Element { name: element.string("AttributeName")?, kind: element.string(kind)? })
    };
    elements.into_iter().map(read).collect::<Result<_, _>>().map(Some)
}

fn constrain_elements(
    constraints: &mut Constraints,
    (list, kind): (&str, &str),
    elements: Option<&[Element<'_>]>,
    kinds: &[&str],
) {
    constraints.required(list, elements.is_some());
    for (number, element) in (1..).zip(elements.unwrap_or_default()) {
        let at = format!("{list}.{number}.member.attributeName");
        constraints.required(&at, element.name.is_some());
        if let Some(name) = element.name {
            constraints.length(&at, name, 1, KEY_ATTRIBUTE_NAME_BYTES_MAX);
        }
        let at = format!("{list}.{number}.member.{kind}");
        constraints.required(&at, element.kind.is_some());
        constraints.one_of(&at, element.kind, kinds);
    }
}

/// Shows a key schema as the service's messages do.
struct Shown<'s>(&'s [Element<'s>]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (position, Element { name, kind }) in self.0.iter().enumerate() {
            let separator = if position > 0 { ", " } else { "" };
            let (name, kind) = (name.unwrap_or("null"), kind.unwrap_or("null"));
            write!(f, "{separator}KeySchemaElement(attributeName={name}, keyType={kind})")?;
        }
        f.write_str("]")
    }
}

fn constrain_key_schema(constraints: &mut Constraints, key_schema: Option<&[Element<'_>]>) {
    if let Some(elements) = key_schema {
        let shown = Shown(elements);
        constraints.length_at_least("keySchema", &shown, elements.len(), 1);
        let max = KEY_SCHEMA_ELEMENTS_MAX;
        constraints.length_at_most("keySchema", &shown, elements.len(), max);
    }
}

fn billing(settings: &TableSettings<'_>) -> Result<Billing, ApiError> {
    if settings.billing_mode == Some("PAY_PER_REQUEST") {
        return if settings.has_throughput() {
            Err(throughput_not_allowed())
        } else {
            Ok(Billing::OnDemand)
        };
    }
    settings.provisioned()?.ok_or_else(throughput_missing)
}

/// The key schema that the elements make up, in the service's order of checks.
fn check_key_schema(
    definitions: &[Element<'_>],
    elements: &[Element<'_>],
) -> Result<KeySchema, ApiError> {
    let names =
        |of: &[Element<'_>]| of.iter().filter_map(|e| e.name).collect::<Vec<_>>().join(", ");
    if elements.len() > definitions.len() {
        return Err(ApiError::validation(
            "Invalid KeySchema: Some index key attribute have no definition",
        ));
    }
    let type_of = |name: Option<&str>| {
        let definition = definitions.iter().find(|definition| definition.name == name)?;
        KeyAttributeType::from_descriptor(definition.kind?)
    };
    if elements.iter().any(|element| type_of(element.name).is_none()) {
        return Err(ApiError::invalid_parameter(format!(
            "Some index key attributes are not defined in AttributeDefinitions. Keys: [{}], AttributeDefinitions: [{}]",
            names(elements),
            names(definitions)
        )));
    }
    let (partition, sort) = match elements {
        [partition] => (partition, None),
        [partition, sort] => (partition, Some(sort)),
        _ => return Err(ApiError::defect("a key schema passed its constraints")),
    };
    if sort.is_some_and(|sort| sort.name == partition.name) {
        return Err(ApiError::validation(
            "Both the Hash Key and the Range Key element in the KeySchema have the same name",
        ));
    }
    if partition.kind != Some("HASH") {
        return Err(ApiError::validation(
            "Invalid KeySchema: The first KeySchemaElement is not a HASH key type",
        ));
    }
    if sort.is_some_and(|sort| sort.kind != Some("RANGE")) {
        return Err(ApiError::validation(
            "Invalid KeySchema: The second KeySchemaElement is not a RANGE key type",
        ));
    }
    if definitions.len() != elements.len() {
        return Err(ApiError::invalid_parameter(
            "Number of attributes in KeySchema does not exactly match number of attributes defined in AttributeDefinitions",
        ));
    }
    let attribute = |element: &Element<'_>| {
        Some(KeyAttribute {
            name: element.name?.to_owned(),
            attribute_type: type_of(element.name)?,
        })
    };
    match (attribute(partition), sort.map(attribute)) {
        (Some(partition), sort) => Ok(KeySchema { partition, sort: sort.flatten() }),
        (None, _) => Err(ApiError::defect("a key attribute passed its constraints")),
    }
}
