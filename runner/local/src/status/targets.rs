//! The tables and buckets that the functions of a template write to, according to the template.
//!
//! A function finds its tables and buckets in its environment variables, so they are its targets.
//! Buckets for failed records are not targets. A table whose stream invokes the function is a
//! target only if the function's policies allow it to write to the table.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use template::{Destination, EventSourceMapping, Function, Stack, Table};

/// Returns, for each function, its targets: `{"function":…,"targets":[{"kind":"table","name":…}]}`.
pub(super) fn of_functions(stack: &Stack) -> Value {
    let of = |function: &Function| json!({"function": function.logical_id, "targets": of_one(stack, function)});
    Value::Array(stack.functions.iter().map(of).collect())
}

fn of_one(stack: &Stack, function: &Function) -> Vec<Value> {
    let named: BTreeSet<&str> =
        function.environment.values().flat_map(|value| words(value)).collect();
    let own: Vec<&EventSourceMapping> =
        stack.mappings.iter().filter(|mapping| mapping.function == function.logical_id).collect();
    let is_source = |table: &str| own.iter().any(|it| stack.table_of(&it.stream) == Some(table));
    let written = stack.written_tables.get(&function.logical_id).map_or(&[][..], Vec::as_slice);
    let keeps_failures = |bucket: &str| {
        stack
            .mappings
            .iter()
            .any(|it| matches!(&it.on_failure, Some(Destination::Bucket(name)) if name == bucket))
    };
    let is_target = |table: &&Table| {
        let name = table.name.as_str();
        named.contains(name) && (!is_source(name) || written.contains(&table.logical_id))
    };
    let tables = stack.tables.iter().filter(is_target).map(|table| table.name.as_str());
    let buckets = stack.buckets.iter().map(|bucket| bucket.name.as_str());
    let buckets = buckets.filter(|name| named.contains(name) && !keeps_failures(name));
    let target = |kind: &'static str| move |name: &str| json!({"kind": kind, "name": name});
    tables.map(target("table")).chain(buckets.map(target("bucket"))).collect()
}

/// Splits the value of a variable into the words that may be names. A value may be a list, or YAML.
fn words(value: &str) -> impl Iterator<Item = &str> {
    value.split(|letter: char| !(letter.is_ascii_alphanumeric() || "_-.".contains(letter)))
}

/// Returns the destination of a mapping's discarded records; null if it has none.
pub(super) fn of_failures(stack: &Stack, mapping: &str) -> Value {
    let mapping = stack.mappings.iter().find(|it| it.logical_id == mapping);
    match mapping.and_then(|mapping| mapping.on_failure.as_ref()) {
        Some(Destination::Bucket(name)) => json!({"kind": "bucket", "name": name}),
        Some(Destination::Queue(name)) => json!({"kind": "queue", "name": name}),
        Some(Destination::Topic(name)) => json!({"kind": "topic", "name": name}),
        Some(Destination::Arn(_)) | None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use template::{Context, read};

    use super::*;

    #[test]
    fn the_targets_are_what_the_environment_names() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../template.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let stack = read("template.yaml", &text, &Context::default()).unwrap();
        let targets = |id: &str| {
            let targets = of_one(&stack, stack.function(id).unwrap());
            targets.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(targets("ArchiveFunction"), ["archive-bucket"]);
        assert_eq!(targets("CountersFunction"), ["totals"]);
        assert_eq!(targets("VersionsFunction"), ["movies-history"]);
        // The streams of both tables also invoke the function.
        assert_eq!(targets("FanOutFunction"), ["order-lines", "fan-out-jobs"]);
        let archive = stack.mappings.iter().find(|it| it.function == "ArchiveFunction").unwrap();
        assert_eq!(of_failures(&stack, &archive.logical_id)["kind"], "bucket");
        assert_eq!(of_failures(&stack, "nothing"), Value::Null);
    }
}
