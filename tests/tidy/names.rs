//! A check that a function has the same name everywhere: its rule, binary, template resource, and
//! docs.

use crate::{assert_none, files, read};

/// Returns the name of a module such as `fan_out` in three spellings: the module, the binary, the
/// resource.
fn spellings(module: &str) -> (String, String) {
    let binary = module.replace('_', "-");
    let resource: String = module
        .split('_')
        .map(|word| {
            let (head, tail) = word.split_at(1);
            head.to_uppercase() + tail
        })
        .collect();
    (binary, format!("{resource}Function"))
}

/// Returns the functions that exist: the binaries of the processor.
fn functions() -> Vec<String> {
    let folder = "functions/processor/src/bin/";
    let functions: Vec<_> = files()
        .iter()
        .filter_map(|path| path.strip_prefix(folder)?.strip_suffix(".rs"))
        .map(|binary| binary.replace('-', "_"))
        .collect();
    assert!(!functions.is_empty(), "no binaries in {folder}");
    functions
}

#[test]
fn each_function_has_one_name_everywhere() {
    let (template, files) = (read("template.yaml"), files());
    let all_in_one = read("functions/processor/src/main.rs");
    let mut complaints = Vec::new();
    for module in functions() {
        let (binary, resource) = spellings(&module);
        if !template.contains(&format!("\n  {resource}:")) {
            complaints.push(format!("template.yaml has no resource {resource}"));
        }
        if !template.contains(&format!("Binary: {binary}")) {
            complaints.push(format!("template.yaml does not build the binary {binary}"));
        }
        if !all_in_one.contains(&format!("\"{binary}\" => ")) {
            complaints.push(format!("the binary `functions` does not know {binary}"));
        }
        // `archive-maintenance` maintains the archive that `archive` writes, and shares its rule
        // and page.
        let owner = module.strip_suffix("_maintenance").unwrap_or(&module);
        let rule = |path: &String| {
            *path == format!("functions/rules/src/{owner}.rs")
                || path.starts_with(&format!("functions/rules/src/{owner}/"))
        };
        if !files.iter().any(rule) {
            complaints.push(format!("functions/rules has no module {owner}"));
        }
        let page = format!("docs/{}.md", owner.replace('_', "-"));
        if !files.contains(&page) {
            complaints.push(format!("{page} is missing"));
        }
    }
    assert_none("a function does not have one name everywhere", &complaints);
}

#[test]
fn every_stream_event_reports_partial_batches() {
    let template = read("template.yaml");
    let events = template.matches("Type: DynamoDB\n").count();
    let reports = template.matches("ReportBatchItemFailures").count();
    assert!(
        events > 0 && reports >= events,
        "{events} stream events, {reports} report partial batches"
    );
}
