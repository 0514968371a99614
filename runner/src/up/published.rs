//! The addresses and settings that a `weir up` publishes for other commands.

use std::collections::BTreeSet;
use std::path::Path;

use super::{StoreChoice, Template, UpArguments};
use client::failure::{Context, Failure, Result};
use client::running::{RUNNING_FILE, Running};
use local::system::System;
use operations::archive::maintenance;
use template::{Absent, EventSourceMapping, Function, Stack, StreamSource};

/// Returns the addresses and settings of a system, without the console, which is started later.
pub(super) fn of(system: &System, arguments: &UpArguments, template: &Template<'_>) -> Running {
    let functions = system.stack().functions.iter();
    let (archive_bucket, archive_prefix) = maintained_archive(system.stack()).unwrap_or_default();
    Running {
        schema: "weir.running/v1".to_owned(),
        process: std::process::id(),
        dynamodb: match arguments.store {
            StoreChoice::Local => system.dynamodb_url().unwrap_or_default().to_owned(),
            StoreChoice::Aws => String::new(),
        },
        aws: system.aws_url().unwrap_or_default().to_owned(),
        s3: system.s3_url(),
        lambda: system.lambda_url(),
        console: String::new(),
        directory: arguments.directory.clone(),
        functions: functions.map(|found| (found.logical_id.clone(), found.name.clone())).collect(),
        buckets: system.stack().buckets.iter().map(|bucket| bucket.name.clone()).collect(),
        archive_bucket,
        archive_prefix,
        archived: archived_tables(system.stack()),
        migrated: migrated_tables(system.stack()),
        not_run: system
            .stack()
            .not_run
            .iter()
            .filter(|absent| absent.what == Absent::Function)
            .map(|absent| (absent.resource.clone(), absent.reason.clone()))
            .collect(),
        // If the path cannot be resolved or is not valid text, commands take no parameters from this file.
        template: std::fs::canonicalize(template.path)
            .ok()
            .filter(|path| path.to_str().is_some())
            .unwrap_or_default(),
        parameters: template.parameters.clone(),
    }
}

/// Writes the addresses for other commands in this folder.
pub(super) fn write(running: &Running) -> Result<()> {
    let path = Path::new(RUNNING_FILE);
    let json = serde_json::to_string(running).map_err(Failure::fatal)?;
    // Renaming is atomic, so a reader finds either the complete file or no file.
    let whole = path.with_extension("json.new");
    path.parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(&whole, format!("{json}\n")))
        .and_then(|()| std::fs::rename(&whole, path))
        .context(|| format!("cannot write `{RUNNING_FILE}`"))
}

/// Returns the tables whose streams a function archives. The function is recognised by the
/// environment variable with the archive's bucket.
fn archived_tables(stack: &Stack) -> Vec<String> {
    tables_with(stack, "ARCHIVE_BUCKET")
}

/// Returns the bucket and the key prefix of the archive that the maintenance function compacts and
/// erases. They are environment variables of this function.
fn maintained_archive(stack: &Stack) -> Option<(String, String)> {
    let of_id = |function: &&Function| function.logical_id == maintenance::FUNCTION;
    let environment = &stack.functions.iter().find(of_id)?.environment;
    let prefix = environment.get("ARCHIVE_PREFIX").map_or("archive/", String::as_str);
    Some((environment.get("ARCHIVE_BUCKET")?.clone(), prefix.to_owned()))
}

/// Returns the tables whose streams the migration function reads. The function is recognised by the
/// environment variable with the control table.
fn migrated_tables(stack: &Stack) -> Vec<String> {
    tables_with(stack, "CONTROL_TABLE")
}

/// Returns the tables whose streams invoke a function with this environment variable.
fn tables_with(stack: &Stack, variable: &str) -> Vec<String> {
    let is_meant = |mapping: &&EventSourceMapping| {
        let function = stack.function(&mapping.function);
        mapping.enabled
            && function.is_some_and(|function| function.environment.contains_key(variable))
    };
    let table = |mapping: &EventSourceMapping| match &mapping.stream {
        StreamSource::StreamOf(id) => stack.table(id).map(|table| table.name.clone()),
        _ => None,
    };
    let tables: BTreeSet<String> =
        stack.mappings.iter().filter(is_meant).filter_map(table).collect();
    tables.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use template::{Context, read};

    #[test]
    fn the_tables_that_are_archived_are_those_of_the_function_with_the_bucket() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../template.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let stack = read("template.yaml", &text, &Context::default()).unwrap();
        assert_eq!(archived_tables(&stack), ["movies"]);
        assert_eq!(migrated_tables(&stack), ["movies", "weir-migrations"]);
        let (bucket, prefix) = maintained_archive(&stack).unwrap();
        assert!(stack.buckets.iter().any(|known| known.name == bucket), "{bucket}");
        assert_eq!(prefix, "archive/");
    }
}
