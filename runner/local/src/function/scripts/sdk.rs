//! Finds the packages that Lambda provides but this machine lacks: the AWS SDK, and the Powertools layers,
//! which AWS publishes. Handlers use them without listing them.
//!
//! This module considers only packages that a handler uses, and installs nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use template::{Language, Layer, sources};
use tokio::process::Command;

use super::{Handler, packages};

/// The modules of Lambda's Python runtimes, each with its package.
const PYTHON: &[(&str, &str)] = &[("boto3", "boto3"), ("botocore", "boto3")];

/// The module of AWS's own layer for Powertools, and its package with all extras.
const POWERTOOLS: (&str, &str) = ("aws_lambda_powertools", "aws-lambda-powertools[all]");

/// The npm scopes whose packages Lambda's Node runtimes from `nodejs18.x` on have.
const NODE_SCOPES: &[&str] = &["@aws-sdk/", "@smithy/"];

const POWERTOOLS_SCOPE: &str = "@aws-lambda-powertools/";

/// Version 2 of the SDK, which the runtimes before `nodejs18.x` have.
const NODE_OLD: &str = "aws-sdk";
const NODE_OLD_LAST: u32 = 16;

/// The maximum size of a source file that is searched. Larger files are data or bundles.
const SOURCE_BYTES_MAX: u64 = 2_000_000;

const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A script that prints the modules among its arguments that cannot be imported.
const ASK_PYTHON: &str = "import importlib.util, sys
for name in sys.argv[1:]:
    if importlib.util.find_spec(name) is None: print(name)";

/// Returns the packages that a handler uses but does not list, and that this machine lacks.
pub(super) async fn missing(
    handler: &Handler<'_>,
    task_root: &Path,
    layers: &[PathBuf],
    folders: &[PathBuf],
) -> BTreeSet<String> {
    let has_powertools = handler
        .script
        .layers
        .iter()
        .any(|layer| matches!(layer, Layer::OnAws(arn) if arn.contains("Powertools")));
    let folders_of_code = || std::iter::once(task_root).chain(layers.iter().map(PathBuf::as_path));
    match handler.script.language {
        Language::Python => {
            let known: Vec<_> =
                PYTHON.iter().chain(has_powertools.then_some(&POWERTOOLS)).copied().collect();
            let mut used = BTreeSet::new();
            for text in folders_of_code().flat_map(|folder| texts(folder, &["py"])) {
                used.extend(known.iter().filter(|(module, _)| text.contains(module)).copied());
            }
            let modules: Vec<&str> = used.iter().map(|(module, _)| *module).collect();
            let absent = absent_in_python(handler, task_root, folders, &modules).await;
            let is_absent = |(module, _): &&(&str, &str)| absent.iter().any(|it| it == module);
            used.iter().filter(is_absent).map(|(_, package)| (*package).to_owned()).collect()
        }
        Language::Node => {
            let mut scopes = NODE_SCOPES.to_vec();
            scopes.extend(has_powertools.then_some(POWERTOOLS_SCOPE));
            let version: u32 = handler.script.version.parse().unwrap_or(u32::MAX);
            scopes.extend((version <= NODE_OLD_LAST).then_some(NODE_OLD));
            let texts = folders_of_code().flat_map(|folder| texts(folder, &["js", "mjs", "cjs"]));
            let used: BTreeSet<_> =
                texts.flat_map(|text| packages_of_scopes(&text, &scopes)).collect();
            let is_there = |name: &String| {
                packages::is_in_node_modules(task_root, name)
                    || folders.iter().any(|folder| folder.join(name).is_dir())
            };
            used.into_iter().filter(|name| !is_there(name)).collect()
        }
    }
}

/// Returns the contents of a folder's source files with these extensions. Reads each file lazily,
/// because a project may have thousands of files.
fn texts<'e>(folder: &Path, endings: &'e [&str]) -> impl Iterator<Item = String> + use<'e> {
    let is_code = |path: &Path| {
        let ending = path.extension().and_then(|it| it.to_str());
        ending.is_some_and(|ending| endings.contains(&ending))
    };
    sources::files(folder)
        .into_iter()
        .filter(move |source| source.metadata.len() <= SOURCE_BYTES_MAX && is_code(&source.path))
        .filter_map(|source| fs::read_to_string(source.path).ok())
}

/// Returns the modules that the interpreter cannot import. The list is empty if the interpreter
/// fails.
async fn absent_in_python(
    handler: &Handler<'_>,
    task_root: &Path,
    folders: &[PathBuf],
    modules: &[&str],
) -> Vec<String> {
    if modules.is_empty() {
        return Vec::new();
    }
    let path = std::env::join_paths(folders).unwrap_or_default();
    let mut command = Command::new(&handler.interpreter.path);
    command.arg("-c").arg(ASK_PYTHON).args(modules).env("PYTHONPATH", path);
    command.current_dir(task_root).stdin(Stdio::null()).kill_on_drop(true);
    let Ok(Ok(answer)) = tokio::time::timeout(ANSWER_MAX, command.output()).await else {
        return Vec::new();
    };
    String::from_utf8_lossy(&answer.stdout).lines().map(str::to_owned).collect()
}

/// Returns the packages of these scopes that a source loads: `require("…")`, `from "…"`, `import "…"`.
fn packages_of_scopes(text: &str, scopes: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for scope in scopes {
        for (at, _) in text.match_indices(scope) {
            let (before, rest) = text.split_at(at);
            let Some(before) = before.strip_suffix(['"', '\'', '`']) else { continue };
            let loads =
                ["(", "from", "import"].iter().any(|word| before.trim_end().ends_with(word));
            let behind = rest.get(scope.len()..).unwrap_or_default();
            let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
            let name: String = behind.chars().take_while(|letter| is_part(*letter)).collect();
            // An entry without a trailing slash is a package, not a scope.
            if loads && scope.ends_with('/') != name.is_empty() {
                found.insert(format!("{scope}{name}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_found_where_a_source_loads_them() {
        let text = r#"
            const { S3 } = require('@aws-sdk/client-s3');
            import { DynamoDB } from "@aws-sdk/client-dynamodb";
            import{a}from"@smithy/types/dist";
            const m = await import(`@aws-sdk/lib-storage`);
            const old = require("aws-sdk"), clients = require('aws-sdk/clients/s3');
            const other = require("aws-sdk-mock");
            const name = "@aws-sdk/not-loaded", version = '@aws-sdk/';
        "#;
        let found = packages_of_scopes(text, &["@aws-sdk/", "@smithy/", "aws-sdk"]);
        let expected = [
            "@aws-sdk/client-dynamodb",
            "@aws-sdk/client-s3",
            "@aws-sdk/lib-storage",
            "@smithy/types",
            "aws-sdk",
        ];
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }
}
