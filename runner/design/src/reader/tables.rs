//! Checks that the parts of tables and their workload are consistent.

use std::collections::BTreeSet;

use template::diagnostic::{Findings, listed, similar};
use template::document::{Entry, Node};

use crate::data_model::{
    BillingMode, DataModel, KeyType, Place, ProjectionType, Table, TableWorkload,
};
use crate::reader::{list, report_duplicates, shape, text, typed};

/// Adds a table to the model and checks it.
pub(super) fn read(model: &mut DataModel, mut table: Table, node: &Node, findings: &Findings<'_>) {
    // `CreateTable` rejects this key, so its attribute is stored in the workload, as
    // `time_to_live`.
    table.other.remove(shape::TIME_TO_LIVE);
    if let Some(attribute) = stated_time_to_live(node) {
        let workload = model.workload.entry(table.table_name.clone()).or_default();
        workload.time_to_live = Some(attribute.to_owned());
    }
    let at = node.get("TableName").map_or(node.at, |name| name.at);
    let position = model.tables.len();
    if let Some((first, _)) = model.table(&table.table_name) {
        let line = model.place(&Place::Table(first)).line;
        findings.error(
            at,
            format!("the table `{}` is declared twice, first in line {line}", table.table_name),
            "rename or remove one of the two",
        );
    }
    check_name(&table.table_name, at, findings);
    check_definitions(&table, node, findings);
    check_indexes(&table, node, findings);
    check_billing(&table, node, findings);
    for kind in ["GlobalSecondaryIndexes", "LocalSecondaryIndexes"] {
        for index in list(node.get(kind)) {
            let at = index.get("IndexName").map_or(index.at, |name| name.at);
            let place = Place::Index(position, text(index, "IndexName").to_owned());
            model.places.entry(place).or_insert(at);
        }
    }
    model.places.insert(Place::Table(position), at);
    model.tables.push(table);
}

/// Reports the name of a table that DynamoDB does not accept.
fn check_name(name: &str, at: template::Span, findings: &Findings<'_>) {
    let is_name = (3..=255).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    if !is_name {
        let message = format!("`{name}` is not a valid name of a table");
        findings.error(at, message, "write 3 to 255 of a-z, A-Z, 0-9, `_`, `-` and `.`");
    }
}

/// Reports key attributes without a definition, definitions that no key uses, and invalid keys.
fn check_definitions(table: &Table, node: &Node, findings: &Findings<'_>) {
    let definitions = list(node.get("AttributeDefinitions"));
    let named = definitions.iter().map(|node| (text(node, "AttributeName"), node.at));
    report_duplicates(named, "attribute definitions", findings);
    let defined = || table.attribute_definitions.iter().map(|found| found.attribute_name.as_str());
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let mut keys = vec![(node, true)];
    let indexes = ["GlobalSecondaryIndexes", "LocalSecondaryIndexes"];
    for (kind, is_global) in indexes.into_iter().zip([true, false]) {
        keys.extend(list(node.get(kind)).iter().map(|index| (index, is_global)));
    }
    for (at, (owner, is_global)) in keys.into_iter().enumerate() {
        let key = list(owner.get("KeySchema"));
        for element in key {
            let name = text(element, "AttributeName");
            used.insert(name);
            if !defined().any(|found| found == name) {
                let help = match similar(name, defined()) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!(
                        "add {{\"AttributeName\": \"{name}\", \"AttributeType\": \"S\"}} to `AttributeDefinitions`"
                    ),
                };
                let place = element.get("AttributeName").map_or(element.at, |name| name.at);
                findings.error(place, format!("the key attribute `{name}` is not defined"), help);
            }
        }
        let many = if at > 0 && is_global { 4 } else { 1 };
        check_key(key, many, owner, findings);
    }
    for node in definitions {
        let name = text(node, "AttributeName");
        if !used.contains(name) {
            findings.error(
                node.at,
                format!("no key uses the attribute `{name}`"),
                "remove it: DynamoDB accepts only key attributes in `AttributeDefinitions`",
            );
        }
    }
}

/// Reports a key without a partition key, or with more attributes than DynamoDB allows.
fn check_key(key: &[Node], many: usize, owner: &Node, findings: &Findings<'_>) {
    let at = owner.get("KeySchema").map_or(owner.at, |node| node.at);
    let count = |kind: &str| key.iter().filter(|node| text(node, "KeyType") == kind).count();
    if count("HASH") == 0 {
        let help = "write {\"AttributeName\": \"…\", \"KeyType\": \"HASH\"}";
        findings.error(at, "this key has no partition key", help);
    }
    for kind in ["HASH", "RANGE"] {
        if count(kind) > many {
            let message =
                format!("this key has {} `{kind}` attributes, the maximum is {many}", count(kind));
            let help = "remove the excess attributes; only a global index can have more than one of each type, up to four";
            findings.error(at, message, help);
        }
    }
}

/// Reports mistakes of indexes.
fn check_indexes(table: &Table, node: &Node, findings: &Findings<'_>) {
    let nodes = ["GlobalSecondaryIndexes", "LocalSecondaryIndexes"];
    let nodes: Vec<&Node> = nodes.into_iter().flat_map(|kind| list(node.get(kind))).collect();
    let named = nodes.iter().map(|node| (text(node, "IndexName"), node.at));
    report_duplicates(named, "indexes", findings);
    for (index, node) in table.indexes().zip(&nodes) {
        let at = node.get("Projection").map_or(node.at, |projection| projection.at);
        let names = &index.projection.non_key_attributes;
        if (index.projection.projection_type == ProjectionType::Include) == names.is_empty() {
            let message = "`NonKeyAttributes` is required with the projection `INCLUDE` and allowed only with it";
            findings.error(
                at,
                message,
                "write {\"ProjectionType\": \"INCLUDE\", \"NonKeyAttributes\": [\"…\"]}",
            );
        }
    }
    let own = table.key_schema.iter().find(|element| element.key_type == KeyType::Hash);
    for (index, node) in
        table.local_secondary_indexes.iter().zip(list(node.get("LocalSecondaryIndexes")))
    {
        let first = index.key_schema.iter().find(|element| element.key_type == KeyType::Hash);
        if let Some(own) = own.filter(|own| Some(*own) != first) {
            let message = "a local index must have the partition key of its table".to_owned();
            let help = format!("write `{}`, or use `GlobalSecondaryIndexes`", own.attribute_name);
            findings.error(node.at, message, help);
        }
    }
}

/// Reports provisioned throughput that does not match the billing mode.
fn check_billing(table: &Table, node: &Node, findings: &Findings<'_>) {
    let at = node.get("TableName").map_or(node.at, |name| name.at);
    let is_provisioned = table.billing_mode == BillingMode::Provisioned;
    if is_provisioned != table.provisioned_throughput.is_some() {
        let (message, help) = match is_provisioned {
            true => (
                "a table with provisioned capacity requires `ProvisionedThroughput`",
                "write `\"BillingMode\": \"PAY_PER_REQUEST\"`, or add `ProvisionedThroughput`",
            ),
            false => (
                "a table on demand cannot have `ProvisionedThroughput`",
                "remove it, or write `\"BillingMode\": \"PROVISIONED\"`",
            ),
        };
        findings.error(at, message, help);
    }
}

/// Parses the expected workload of a table.
pub(super) fn read_workload(model: &mut DataModel, entry: &Entry, findings: &Findings<'_>) {
    let Some((_, table)) = model.table(&entry.key) else {
        super::items::report_unknown_table(model, &entry.key, entry.key_at, findings);
        return;
    };
    for index in entry.value.get("indexes").map_or(&[][..], Node::entries) {
        if table.index(&index.key).is_none() {
            let known = || table.indexes().map(|index| index.index_name.as_str());
            let help = match similar(&index.key, known()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("the table has {}", listed(known())),
            };
            let message = format!("the table has no index `{}`", index.key);
            findings.error(index.key_at, message, help);
        }
    }
    if let Some(mut workload) = typed::<TableWorkload>(&entry.value, &shape::WORKLOAD) {
        let of_table = model.workload.get(&entry.key).and_then(|found| found.time_to_live.clone());
        if let Some((of_table, here)) = of_table.as_ref().zip(workload.time_to_live.as_ref())
            && of_table != here
        {
            let at =
                super::entry(&entry.value, "time_to_live").map_or(entry.key_at, |it| it.value.at);
            findings.error(
                at,
                format!("`time_to_live` is `{here}`, but `TimeToLiveSpecification` of the table has `{of_table}`"),
                "remove one of the two",
            );
        }
        workload.time_to_live = workload.time_to_live.or(of_table);
        model.workload.insert(entry.key.clone(), workload);
    }
}

/// Returns the TTL attribute that a table enables.
fn stated_time_to_live(node: &Node) -> Option<&str> {
    let setting = node.get(shape::TIME_TO_LIVE)?;
    let is_enabled = setting.get("Enabled").and_then(shape::flag)?;
    setting.get("AttributeName")?.as_text().filter(|_| is_enabled)
}
