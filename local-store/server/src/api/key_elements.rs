//! `AttributeDefinitions` and `KeySchema`, of tables and of indexes: reading them, and making a
//! key schema of them in the service's order of checks.
//!
//! What a table or an index may have as its key is decided where it is created.

use std::fmt;

use model::key::{KeyAttribute, KeyAttributeType, KeySchema};
use model::limits::KEY_ATTRIBUTE_NAME_BYTES_MAX;

use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;

/// An element of `AttributeDefinitions` or of `KeySchema`: a name, and its type or its role.
#[derive(Debug)]
pub(crate) struct Element<'j> {
    pub(crate) name: Option<&'j str>,
    pub(crate) kind: Option<&'j str>,
}

/// Elements of a key schema at most: partition key and sort key.
const KEY_SCHEMA_ELEMENTS_MAX: usize = 2;

/// Elements of a key schema of a global index at most (AWS, "Multi-attribute keys"): refused here
/// with a text of our own when there is more than one of a kind.
const GLOBAL_KEY_ELEMENTS_MAX: usize = 8;

pub(crate) fn read_elements<'j>(
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

/// Adds the failures of `AttributeDefinitions`, which must be there when `is_required`.
pub(crate) fn constrain_definitions(
    constraints: &mut Constraints,
    definitions: Option<&[Element<'_>]>,
    is_required: bool,
) {
    constraints.required("attributeDefinitions", definitions.is_some() || !is_required);
    constrain_elements(
        constraints,
        ("attributeDefinitions", "attributeType"),
        definitions,
        &["B", "N", "S"],
    );
}

/// Adds the failures of the elements of a key schema at `at`, which must be there.
pub(crate) fn constrain_key_elements(
    constraints: &mut Constraints,
    at: &str,
    elements: Option<&[Element<'_>]>,
) {
    constraints.required(at, elements.is_some());
    constrain_elements(constraints, (at, "keyType"), elements, &["HASH", "RANGE"]);
}

fn constrain_elements(
    constraints: &mut Constraints,
    (list, kind): (&str, &str),
    elements: Option<&[Element<'_>]>,
    kinds: &[&str],
) {
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

/// Adds the failures of the number of elements of a key schema at `at`.
pub(crate) fn constrain_key_schema(
    constraints: &mut Constraints,
    at: &str,
    key_schema: Option<&[Element<'_>]>,
    is_global_index: bool,
) {
    if let Some(elements) = key_schema {
        let shown = Shown(elements);
        constraints.length_at_least(at, &shown, elements.len(), 1);
        let max = if is_global_index { GLOBAL_KEY_ELEMENTS_MAX } else { KEY_SCHEMA_ELEMENTS_MAX };
        constraints.length_at_most(at, &shown, elements.len(), max);
    }
}

/// Names in the order of their elements.
pub(crate) fn names(of: &[Element<'_>]) -> String {
    of.iter().filter_map(|element| element.name).collect::<Vec<_>>().join(", ")
}

/// The key schema that the elements make up, in the service's order of checks.
pub(crate) fn key_schema(
    definitions: &[Element<'_>],
    elements: &[Element<'_>],
) -> Result<KeySchema, ApiError> {
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
        _ => {
            return Err(ApiError::unsupported(
                "A key of several attributes in a global secondary index",
                "join the values in one attribute",
            ));
        }
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
