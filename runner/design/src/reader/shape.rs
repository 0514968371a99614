//! The schema of a model file, and the validation of a file against it.
//!
//! The schema defines the keys of objects, which keys are required, and the types of values. It
//! also determines how a scalar is converted to JSON, because the parser does not distinguish `1`
//! and `"1"`.

use serde_json::{Map, Number, Value};
use template::diagnostic::{Findings, listed, similar};
use template::document::{Kind, Node};

use crate::findings::Owner;

/// The required type of a value.
#[derive(Debug)]
pub(super) enum Shape {
    Text,
    /// A number of at least 0.
    Number,
    /// A whole number of at least 0.
    Count,
    /// A number from 0 to 1.
    Share,
    Flag,
    OneOf(&'static [&'static str]),
    /// The name of a finding about this owner, for `accept`.
    Accepted(Owner),
    List(&'static Shape),
    /// An object with only these members.
    Object(&'static [Field]),
    /// An object with any member names, whose values have this shape.
    Named(&'static Shape),
    /// An item, which the module `items` parses.
    Item,
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Field {
    name: &'static str,
    is_needed: bool,
    shape: &'static Shape,
    /// An example of a value, for messages.
    example: &'static str,
}

const fn needed(name: &'static str, shape: &'static Shape, example: &'static str) -> Field {
    Field { name, is_needed: true, shape, example }
}

const fn optional(name: &'static str, shape: &'static Shape, example: &'static str) -> Field {
    Field { name, is_needed: false, shape, example }
}

/// Common wrong names, and the correct name of each in a model file.
const MISNAMED: [(&str, &str); 9] = [
    ("partition_key", "`KeySchema` with `KeyType` `HASH`"),
    ("sort_key", "`KeySchema` with `KeyType` `RANGE`"),
    ("gsis", "`GlobalSecondaryIndexes`"),
    ("lsis", "`LocalSecondaryIndexes`"),
    ("multi_attribute_keys", "several members of `KeySchema` with the same `KeyType`"),
    ("operation", "`dynamodb_operation`"),
    ("command", "`implementation`"),
    ("rps", "`average_per_second`, and `peak_per_second` if it differs"),
    ("ttl", "`TimeToLiveSpecification`, or `time_to_live` in `workload` `tables`"),
];

/// The shape of a model file.
pub(super) static MODEL: Shape = Shape::Object(&[
    needed("tables", &Shape::List(&TABLE), "[]"),
    needed("items", &Shape::Named(&Shape::List(&WRITE)), "{}"),
    needed("access_patterns", &Shape::List(&PATTERN), "[]"),
    optional(
        "workload",
        &Shape::Object(&[optional("tables", &Shape::Named(&WORKLOAD), "{}")]),
        "{}",
    ),
]);

/// The shape of a table.
pub(super) static TABLE: Shape = Shape::Object(&[
    needed("TableName", &Shape::Text, "\"orders\""),
    needed("AttributeDefinitions", &Shape::List(&ATTRIBUTE), ONE_ATTRIBUTE),
    needed("KeySchema", &KEY, ONE_KEY),
    optional("GlobalSecondaryIndexes", &Shape::List(&INDEX), "[]"),
    optional("LocalSecondaryIndexes", &Shape::List(&INDEX), "[]"),
    optional(
        "BillingMode",
        &Shape::OneOf(&["PAY_PER_REQUEST", "PROVISIONED"]),
        "\"PAY_PER_REQUEST\"",
    ),
    optional("ProvisionedThroughput", &THROUGHPUT, UNITS),
    optional(
        "StreamSpecification",
        &Shape::Object(&[
            needed("StreamEnabled", &Shape::Flag, "true"),
            optional(
                "StreamViewType",
                &Shape::OneOf(&["NEW_AND_OLD_IMAGES", "NEW_IMAGE", "OLD_IMAGE", "KEYS_ONLY"]),
                "\"NEW_AND_OLD_IMAGES\"",
            ),
        ]),
        "{\"StreamEnabled\": true, \"StreamViewType\": \"NEW_AND_OLD_IMAGES\"}",
    ),
    optional(
        "SSESpecification",
        &Shape::Object(&[
            optional("Enabled", &Shape::Flag, "true"),
            optional("SSEType", &Shape::Text, "\"KMS\""),
            optional("KMSMasterKeyId", &Shape::Text, "\"alias/aws/dynamodb\""),
        ]),
        "{\"Enabled\": true}",
    ),
    optional(
        "Tags",
        &Shape::List(&Shape::Object(&[
            needed("Key", &Shape::Text, "\"team\""),
            needed("Value", &Shape::Text, "\"orders\""),
        ])),
        "[]",
    ),
    optional(
        "TableClass",
        &Shape::OneOf(&["STANDARD", "STANDARD_INFREQUENT_ACCESS"]),
        "\"STANDARD\"",
    ),
    optional("DeletionProtectionEnabled", &Shape::Flag, "true"),
    optional(TIME_TO_LIVE, &TTL, "{\"AttributeName\": \"expires_at\", \"Enabled\": true}"),
]);

/// The key for the TTL attribute of a table. This key is from templates; `CreateTable` does not
/// have it.
pub(super) const TIME_TO_LIVE: &str = "TimeToLiveSpecification";

static TTL: Shape = Shape::Object(&[
    needed("AttributeName", &Shape::Text, "\"expires_at\""),
    needed("Enabled", &Shape::Flag, "true"),
]);

const ONE_ATTRIBUTE: &str = "[{\"AttributeName\": \"pk\", \"AttributeType\": \"S\"}]";
const ONE_KEY: &str = "[{\"AttributeName\": \"pk\", \"KeyType\": \"HASH\"}]";
const UNITS: &str = "{\"ReadCapacityUnits\": 5, \"WriteCapacityUnits\": 5}";

static ATTRIBUTE: Shape = Shape::Object(&[
    needed("AttributeName", &Shape::Text, "\"pk\""),
    needed("AttributeType", &Shape::OneOf(&["S", "N", "B"]), "\"S\""),
]);

static KEY: Shape = Shape::List(&Shape::Object(&[
    needed("AttributeName", &Shape::Text, "\"pk\""),
    needed("KeyType", &Shape::OneOf(&["HASH", "RANGE"]), "\"HASH\""),
]));

static THROUGHPUT: Shape = Shape::Object(&[
    needed("ReadCapacityUnits", &Shape::Count, "5"),
    needed("WriteCapacityUnits", &Shape::Count, "5"),
]);

static INDEX: Shape = Shape::Object(&[
    needed("IndexName", &Shape::Text, "\"by-status\""),
    needed("KeySchema", &KEY, ONE_KEY),
    needed(
        "Projection",
        &Shape::Object(&[
            needed("ProjectionType", &Shape::OneOf(&["ALL", "KEYS_ONLY", "INCLUDE"]), "\"ALL\""),
            optional("NonKeyAttributes", &Shape::List(&Shape::Text), "[\"name\"]"),
        ]),
        "{\"ProjectionType\": \"ALL\"}",
    ),
    optional("ProvisionedThroughput", &THROUGHPUT, UNITS),
]);

static WRITE: Shape = Shape::Object(&[needed(
    "PutRequest",
    &Shape::Object(&[needed("Item", &Shape::Item, "{\"pk\": {\"S\": \"value\"}}")]),
    "{\"Item\": {\"pk\": {\"S\": \"value\"}}}",
)]);

static OF_PATTERN: Shape = Shape::List(&Shape::Accepted(Owner::Pattern));
static OF_TABLE: Shape = Shape::List(&Shape::Accepted(Owner::Table));

/// The shape of an access pattern.
pub(super) static PATTERN: Shape = Shape::Object(&[
    needed("pattern", &Shape::Text, "\"1\""),
    needed("description", &Shape::Text, "\"Get an order\""),
    optional("table", &Shape::Text, "\"orders\""),
    optional("index", &Shape::Text, "\"by-status\""),
    optional("dynamodb_operation", &Shape::Text, "\"Query\""),
    optional("implementation", &Shape::Text, "\"aws dynamodb query …\""),
    optional("reason", &Shape::Text, "\"a search service answers it\""),
    optional("average_per_second", &Shape::Number, "100"),
    optional("peak_per_second", &Shape::Number, "500"),
    optional("items_per_request", &Shape::Number, "20"),
    optional("busiest_share", &Shape::Share, "0.1"),
    optional("accept", &OF_PATTERN, "[\"scan\"]"),
]);

/// The shape of the expected workload of a table.
pub(super) static WORKLOAD: Shape = Shape::Object(&[
    optional("items", &Shape::Count, "1000000"),
    optional("item_bytes", &Shape::Count, "600"),
    optional("retention_days", &Shape::Number, "90"),
    optional("time_to_live", &Shape::Text, "\"expires_at\""),
    optional("partition_keys", &Shape::Count, "50000"),
    optional(
        "indexes",
        &Shape::Named(&Shape::Object(&[
            optional("items", &Shape::Count, "1000"),
            optional("partition_keys", &Shape::Count, "5"),
        ])),
        "{}",
    ),
    optional("accept", &OF_TABLE, "[\"unused-index\"]"),
]);

/// Reports all differences of a node from a shape.
pub(super) fn check(node: &Node, shape: &Shape, findings: &Findings<'_>) {
    let wrong = |wanted: &str, help: &str| {
        let found = match node.as_text() {
            Some(text) => format!("`{text}`"),
            None => node.description().to_owned(),
        };
        findings.error(node.at, format!("expected {wanted}, found {found}"), help);
    };
    let number = || node.as_text().and_then(|text| text.parse::<f64>().ok());
    let count = || node.as_text().and_then(|text| text.parse::<u64>().ok());
    match shape {
        Shape::Text if node.as_text().is_none_or(str::is_empty) => {
            wrong("a string", "write a string in quotes");
        }
        Shape::Number if !number().is_some_and(|number| number >= 0.0 && number.is_finite()) => {
            wrong("a number of at least 0", "write, for example, 100");
        }
        Shape::Count if count().is_none_or(|count| count > COUNT_MAX) => {
            wrong("a whole number", "write, for example, 1000");
        }
        Shape::Share if !number().is_some_and(|number| (0.0..=1.0).contains(&number)) => {
            wrong("a number from 0 to 1", "write, for example, 0.1 for a tenth");
        }
        Shape::Flag if flag(node).is_none() => wrong("true or false", "write true or false"),
        Shape::OneOf(known) if node.as_text().is_none_or(|text| !known.contains(&text)) => {
            let meant = node.as_text().and_then(|text| meant(text, known.iter().copied()));
            let help = match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "write one of these values".to_owned(),
            };
            wrong(&listed(known.iter().copied()), &help);
        }
        Shape::Accepted(owner) => {
            let name = node.as_text().unwrap_or_default();
            if !owner.checks().contains(&name) {
                report_accepted(name, *owner, node, findings);
            }
        }
        Shape::List(member) => match &node.kind {
            Kind::List(members) => members.iter().for_each(|node| check(node, member, findings)),
            _ => wrong("a list", "write [ and ] around its members"),
        },
        Shape::Named(member) => match &node.kind {
            Kind::Map(entries) => {
                entries.iter().for_each(|entry| check(&entry.value, member, findings));
            }
            _ => wrong("an object", "write a name before each member"),
        },
        Shape::Object(fields) => match &node.kind {
            Kind::Map(_) => check_members(node, fields, findings),
            _ => wrong("an object", &format!("write an object with {}", names(fields))),
        },
        _ => {}
    }
}

/// The maximum of a whole number, up to which a float is exact.
const COUNT_MAX: u64 = 1 << 53;

fn check_members(node: &Node, fields: &[Field], findings: &Findings<'_>) {
    for entry in node.entries() {
        match fields.iter().find(|field| field.name == entry.key) {
            // Generators of model files write null for fields that a pattern does not use.
            Some(field) if !field.is_needed && matches!(entry.value.kind, Kind::Null) => {}
            Some(field) => check(&entry.value, field.shape, findings),
            None => {
                let misnamed = MISNAMED.iter().find(|(name, _)| *name == entry.key);
                let meant = meant(&entry.key, fields.iter().map(|field| field.name));
                let help = match (misnamed, meant) {
                    (_, Some(meant)) => format!("did you mean `{meant}`?"),
                    (Some((_, instead)), None) => format!("write {instead}"),
                    (None, None) => format!("known keys: {}", names(fields)),
                };
                findings.error(entry.key_at, format!("unknown key `{}`", entry.key), help);
            }
        }
    }
    for field in fields.iter().filter(|field| field.is_needed && node.get(field.name).is_none()) {
        let help = format!("write `\"{}\": {}`", field.name, field.example);
        findings.error(node.at, format!("`{}` is missing", field.name), help);
    }
}

/// Reports a name under `accept` that has no effect, because the finding belongs to another owner
/// or does not exist.
fn report_accepted(name: &str, owner: Owner, node: &Node, findings: &Findings<'_>) {
    let other = owner.other();
    if other.checks().contains(&name) {
        let message = format!("`{name}` is a finding of {other}, and has no effect here");
        findings.error(node.at, message, format!("move it to `accept` of {}", other.place()));
        return;
    }
    let known = || owner.checks().iter().copied();
    let message = format!("{owner} has no finding `{name}`");
    let of_other = meant(name, other.checks().iter().copied());
    let help = match (meant(name, known()), of_other) {
        (Some(meant), _) => format!("did you mean `{meant}`?"),
        (None, Some(meant)) => {
            format!("did you mean `{meant}`? It belongs to `accept` of {}", other.place())
        }
        (None, None) => format!("write {}", listed(known())),
    };
    findings.error(node.at, message, help);
}

/// The minimum length of a prefix from which a name is guessed.
const BEGINNING_MIN: usize = 3;

/// Returns the known name that was probably meant: a similar name, or the only name with this
/// prefix.
fn meant<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone) -> Option<&'k str> {
    let mut begun = known.clone().filter(|known| known.starts_with(name));
    let only = begun.next().filter(|_| name.len() >= BEGINNING_MIN && begun.next().is_none());
    similar(name, known).or(only)
}

fn names(fields: &[Field]) -> String {
    listed(fields.iter().map(|field| field.name)).replace(" or ", " and ")
}

/// Parses a Boolean. Python generators write `True`.
pub(super) fn flag(node: &Node) -> Option<bool> {
    match node.as_text()? {
        "true" | "True" => Some(true),
        "false" | "False" => Some(false),
        _ => None,
    }
}

/// Converts a node of this shape to JSON. Parts with another shape become null.
pub(super) fn value(node: &Node, shape: &Shape) -> Value {
    let text = node.as_text().unwrap_or_default();
    match shape {
        Shape::Text | Shape::OneOf(_) | Shape::Accepted(_) => Value::from(text),
        Shape::Count => text.parse::<u64>().map_or(Value::Null, Value::from),
        Shape::Number | Shape::Share => {
            let number = text.parse().ok().and_then(Number::from_f64);
            number.map_or(Value::Null, Value::Number)
        }
        Shape::Flag => flag(node).map_or(Value::Null, Value::Bool),
        Shape::List(member) => {
            super::list(Some(node)).iter().map(|node| value(node, member)).collect()
        }
        Shape::Named(member) => {
            let entries = node.entries().iter();
            Value::Object(
                entries.map(|entry| (entry.key.clone(), value(&entry.value, member))).collect(),
            )
        }
        Shape::Object(fields) => {
            let members = node.entries().iter().filter_map(|entry| {
                let field = fields.iter().find(|field| field.name == entry.key)?;
                let is_absent = matches!(entry.value.kind, Kind::Null);
                (!is_absent).then_some(())?;
                Some((entry.key.clone(), value(&entry.value, field.shape)))
            });
            Value::Object(members.collect::<Map<_, _>>())
        }
        Shape::Item => Value::Null,
    }
}
