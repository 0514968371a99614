//! `AttributeDefinitions` and `KeySchema` of tables and indexes: parses them and creates a key
//! schema. The order of checks is DynamoDB's.
//!
//! `create_table` checks the rules that apply only to tables, and `index_parameters` the rules that
//! apply only to indexes.

use std::collections::BTreeSet;
use std::fmt;

use model::IndexKeySchema;
use model::key::{KeyAttribute, KeyAttributeType, KeySchema};
use model::limits::{INDEX_KEY_ATTRIBUTES_MAX, KEY_ATTRIBUTE_NAME_BYTES_MAX};

use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;

/// An element of `AttributeDefinitions` or `KeySchema`: a name, and a type or a role in the key.
#[derive(Debug)]
pub(crate) struct Element<'j> {
    pub(crate) name: Option<&'j str>,
    pub(crate) kind: Option<&'j str>,
}

/// The maximum number of elements of a key schema: partition key and sort key.
const KEY_SCHEMA_ELEMENTS_MAX: usize = 2;

/// The maximum number of elements of a global index's key schema in a request. It allows one
/// partition key attribute and one sort key attribute too many, so that the error can name the kind
/// that exceeds its limit.
const GLOBAL_KEY_ELEMENTS_MAX: usize = 2 * (INDEX_KEY_ATTRIBUTES_MAX + 1);

pub(crate) fn read_elements<'j>(
    parameters: Parameters<'j>,
    list: &str,
    kind: &str,
) -> Result<Option<Vec<Element<'j>>>, ApiError> {
    let class = if list == "KeySchema" { "KeySchemaElement" } else { "AttributeDefinition" };
    let Some(elements) = parameters.structures(list, class)? else {
        return Ok(None);
    };
    let read = |element: Parameters<'j>| {
        Ok(Element { name: element.string("AttributeName")?, kind: element.string(kind)? })
    };
    elements.into_iter().map(read).collect::<Result<_, _>>().map(Some)
}

/// Adds the failures of `AttributeDefinitions`. If `is_required` is true, the parameter must be
/// present.
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

/// Adds the failures of the elements of a key schema. `at` is the path of the key schema in the
/// request.
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
        let of_name = format!("{list}.{number}.member.attributeName");
        let of_kind = format!("{list}.{number}.member.{kind}");
        // If both members are missing, DynamoDB reports the name first for a definition, and last for a key
        // element.
        if kind == "attributeType" {
            constraints.required(&of_kind, element.kind.is_some());
        }
        constraints.required(&of_name, element.name.is_some());
        if let Some(name) = element.name {
            constraints.length(&of_name, name, 1, KEY_ATTRIBUTE_NAME_BYTES_MAX);
        }
        if kind != "attributeType" {
            constraints.required(&of_kind, element.kind.is_some());
        }
        constraints.one_of(&of_kind, element.kind, kinds);
    }
}

/// A key schema in the form of DynamoDB's messages.
struct QuotedSchema<'s>(&'s [Element<'s>]);

impl fmt::Display for QuotedSchema<'_> {
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

/// Adds a failure if a key schema has too few or too many elements. `at` is the path of the key
/// schema in the request.
pub(crate) fn constrain_key_schema(
    constraints: &mut Constraints,
    at: &str,
    key_schema: Option<&[Element<'_>]>,
    is_global_index: bool,
) {
    if let Some(elements) = key_schema {
        let shown = QuotedSchema(elements);
        constraints.length_at_least(at, &shown, elements.len(), 1);
        let max = if is_global_index { GLOBAL_KEY_ELEMENTS_MAX } else { KEY_SCHEMA_ELEMENTS_MAX };
        constraints.length_at_most(at, &shown, elements.len(), max);
    }
}

/// Returns the names in the order of their elements.
pub(crate) fn names(of: &[Element<'_>]) -> String {
    of.iter().filter_map(|element| element.name).collect::<Vec<_>>().join(", ")
}

/// Creates a key schema from its elements. Checks them in DynamoDB's order.
pub(crate) fn key_schema(
    definitions: &[Element<'_>],
    elements: &[Element<'_>],
) -> Result<KeySchema, ApiError> {
    check_defined(definitions, elements)?;
    let (partition, sort) = match elements {
        [partition] => (partition, None),
        [partition, sort] => (partition, Some(sort)),
        _ => return Err(ApiError::defect("an invalid key schema passed validation")),
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
    let partition = attribute(definitions, partition)?;
    let sort = sort.map(|sort| attribute(definitions, sort)).transpose()?;
    Ok(KeySchema { partition, sort })
}

/// Creates the key schema of a global index, which may have several attributes of each kind.
pub(crate) fn global_key_schema(
    definitions: &[Element<'_>],
    elements: &[Element<'_>],
) -> Result<IndexKeySchema, ApiError> {
    let of_kind = |kind: &'static str| elements.iter().filter(move |e| e.kind == Some(kind));
    if of_kind("HASH").count() <= 1 && of_kind("RANGE").count() <= 1 {
        return key_schema(definitions, elements).map(IndexKeySchema::from);
    }
    check_defined(definitions, elements)?;
    if elements.first().is_some_and(|first| first.kind != Some("HASH")) {
        return Err(ApiError::validation(
            "Invalid KeySchema: The first KeySchemaElement is not a HASH key type",
        ));
    }
    for kind in ["HASH", "RANGE"] {
        if of_kind(kind).count() > INDEX_KEY_ATTRIBUTES_MAX {
            return Err(ApiError::invalid_parameter(format!(
                "The KeySchema exceeds the maximum allowed number of {kind} key attributes"
            )));
        }
    }
    let mut seen = BTreeSet::new();
    if !elements.iter().all(|element| seen.insert(element.name)) {
        return Err(ApiError::validation(
            "The KeySchema contains multiple key attributes with the same name",
        ));
    }
    if elements.is_sorted_by_key(|element| element.kind) {
        let all = |kind| of_kind(kind).map(|e| attribute(definitions, e)).collect();
        let (partition, sort): (Result<_, ApiError>, Result<_, ApiError>) =
            (all("HASH"), all("RANGE"));
        return Ok(IndexKeySchema { partition: partition?, sort: sort? });
    }
    Err(ApiError::invalid_parameter(
        "All HASH key attributes must precede RANGE key attributes in the KeySchema",
    ))
}

/// Returns the type of an attribute from its definition; `None` if it has no valid definition.
fn type_of(definitions: &[Element<'_>], name: Option<&str>) -> Option<KeyAttributeType> {
    let definition = definitions.iter().find(|definition| definition.name == name)?;
    KeyAttributeType::from_descriptor(definition.kind?)
}

fn check_defined(definitions: &[Element<'_>], elements: &[Element<'_>]) -> Result<(), ApiError> {
    if elements.iter().all(|element| type_of(definitions, element.name).is_some()) {
        return Ok(());
    }
    Err(ApiError::invalid_parameter(format!(
        "Some index key attributes are not defined in AttributeDefinitions. Keys: [{}], AttributeDefinitions: [{}]",
        names(elements),
        names(definitions)
    )))
}

fn attribute(definitions: &[Element<'_>], element: &Element<'_>) -> Result<KeyAttribute, ApiError> {
    match (element.name, type_of(definitions, element.name)) {
        (Some(name), Some(attribute_type)) => {
            Ok(KeyAttribute { name: name.to_owned(), attribute_type })
        }
        _ => Err(ApiError::defect("an invalid key attribute passed validation")),
    }
}
