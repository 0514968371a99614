//! The kinds of project: the files and programs of each kind, and the values of their markers.
//!
//! `project` writes the files.

use std::env;

use clap::ValueEnum;

use super::failure::InitError;
use super::markers::{Values, fill};
use super::project::{Content, Project};
use super::table::{KeyAttribute, Table, definitions, examples};

/// The suffix of the name of a history table, by which `weir versions` finds it.
const HISTORY: &str = "-history";

/// The names of tables and attributes that `weir counters` uses without flags.
const SLOTS_TABLE: &str = "votes";
const SLOT_KEY: &str = "slot";
const TOTALS_TABLE: &str = "totals";

/// The maximum number of bytes of the table's name that a migration's name contains. A migration's
/// name has at most 64 bytes.
const MIGRATION_NAME_MAX: usize = 60;

/// The content of a file below `runner/init/`, embedded at compile time.
macro_rules! text {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/init/", $path))
    };
}

/// The contents of the files that every kind of project has.
struct Texts {
    template: &'static str,
    readme: &'static str,
    test: &'static str,
}

/// A language of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Language {
    /// Rust, built by cargo
    Rust,
    /// Python, with only the standard library
    Python,
    /// JavaScript on Node.js, without packages
    Node,
}

/// The copies of a fan-out project.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    pub(super) table: Table,
    /// The attribute with the key of a copy's origin.
    pub(super) reference: String,
    /// The attribute of the origin that a copy contains.
    pub(super) attribute: String,
}

/// Returns the project of an archive.
pub(super) fn archive(table: &Table) -> Project {
    let texts = Texts {
        template: text!("archive/template.yaml"),
        readme: text!("archive/README.md"),
        test: text!("archive/test"),
    };
    let values = vec![("ttl", table.ttl.clone().unwrap_or_default())];
    let programs = [
        ("archive", "archive/bootstrap"),
        ("archive-maintenance", "archive-maintenance/bootstrap"),
    ];
    of_job(table, &texts, values, &programs)
}

/// Returns the project of sharded counters.
pub(super) fn counters(table: &Table, totals: &str, slots: u32) -> Project {
    let texts = Texts {
        template: text!("counters/template.yaml"),
        readme: text!("counters/README.md"),
        test: text!("counters/test"),
    };
    let flag = |flag: &str, value: &str, default: &str| match value == default {
        true => String::new(),
        false => format!(" --{flag} '{value}'"),
    };
    let slot_flags = flag("slots-table", &table.name, SLOTS_TABLE)
        + &flag("slot-key", &table.key.name, SLOT_KEY);
    let values = vec![
        ("totals", totals.to_owned()),
        ("slots", slots.to_string()),
        ("slot_flags", slot_flags),
        ("total_flags", flag("totals-table", totals, TOTALS_TABLE)),
        ("fold_to", slots.div_ceil(2).to_string()),
    ];
    of_job(table, &texts, values, &[("counters", "counters/bootstrap")])
}

/// Returns the project of versions.
pub(super) fn versions(table: &Table) -> Result<Project, InitError> {
    let texts = Texts {
        template: text!("versions/template.yaml"),
        readme: text!("versions/README.md"),
        test: text!("versions/test"),
    };
    let values = vec![("history", table.derived(HISTORY)?)];
    Ok(of_job(table, &texts, values, &[("versions", "versions/bootstrap")]))
}

/// Returns the project of a fan-out.
pub(super) fn fan_out(origins: &Table, copies: &Copies) -> Result<Project, InitError> {
    let Copies { table, reference, attribute } = copies;
    if table.name == origins.name {
        return Err(InitError::Table(format!(
            "table `{}` cannot hold both origins and copies: name a different table with --copies",
            table.name
        )));
    }
    let texts = Texts {
        template: text!("fan-out/template.yaml"),
        readme: text!("fan-out/README.md"),
        test: text!("fan-out/test"),
    };
    let reference = KeyAttribute { name: reference.clone(), kind: origins.key.kind };
    let mut attributes: Vec<_> = table.key_attributes().collect();
    match attributes.iter().find(|it| it.name == reference.name) {
        Some(other) if other.kind == reference.kind => {}
        Some(other) => {
            return Err(InitError::Table(format!(
                "the reference `{}` is a key attribute of the copies with type {}, but the key of the origins has type {}",
                other.name,
                other.kind.descriptor(),
                reference.kind.descriptor()
            )));
        }
        None => attributes.push(&reference),
    }
    if attributes.iter().any(|it| it.name == *attribute) || origins.key.name == *attribute {
        return Err(InitError::Table(format!(
            "`{attribute}` is part of a key, so copies of it cannot be updated: name a different attribute with --attribute"
        )));
    }
    let values = vec![
        ("copies", table.name.clone()),
        ("copies_attributes", definitions(attributes.iter().copied())),
        ("copies_key_schema", table.key_schema()),
        ("copy_item", examples(attributes.iter().copied())),
        ("reference", reference.name.clone()),
        ("attribute", attribute.clone()),
    ];
    Ok(of_job(origins, &texts, values, &[("fan-out", "fan-out/bootstrap")]))
}

/// Returns the project of a migration.
pub(super) fn migration(table: &Table, target: &str) -> Project {
    let texts = Texts {
        template: text!("migration/template.yaml"),
        readme: text!("migration/README.md"),
        test: text!("migration/test"),
    };
    let values = vec![("target", target.to_owned()), ("migration", migration_name(&table.name))];
    let plan = fill(text!("migration/plan.yaml"), &all_values(table, values.clone(), ""));
    let mut project = of_job(table, &texts, values, &[("migration", "migration/bootstrap")]);
    project.add("plan.yaml", "the rules that map sources to targets and back", Content::Text(plan));
    project
}

/// Returns the name of a migration: lower-case letters, digits and hyphens, with a letter or digit first.
fn migration_name(table: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = table.chars().take(MIGRATION_NAME_MAX).map(letter).collect();
    let name = name.trim_start_matches('-');
    if name.is_empty() { "table-1".to_owned() } else { format!("{name}-1") }
}

/// Returns the project of a function in a language.
pub(super) fn function(table: &Table, language: Language) -> Project {
    let texts = Texts {
        template: text!("function/template.yaml"),
        readme: text!("function/README.md"),
        test: text!("function/test"),
    };
    let [metadata, code, handler, runtime, source, unit_test, build] = match language {
        Language::Rust => [
            "Metadata: {BuildMethod: rust-cargolambda}",
            ".",
            "bootstrap",
            "provided.al2023",
            "src/main.rs",
            "cargo test --quiet",
            "sam build && ",
        ],
        Language::Python => {
            let unit_test = "python3 -m unittest --quiet";
            ["", "function/", "app.handler", "python3.13", "function/app.py", unit_test, ""]
        }
        Language::Node => {
            let unit_test = "node --test";
            ["", "function/", "app.handler", "nodejs22.x", "function/app.mjs", unit_test, ""]
        }
    };
    let values = [
        ("metadata", metadata),
        ("code", code),
        ("handler", handler),
        ("runtime", runtime),
        ("source", source),
        ("unit_test", unit_test),
        ("programs", ""),
    ];
    let values = values.map(|(name, value)| (name, value.to_owned()));
    let mut project = of_texts(&texts, &all_values(table, values.to_vec(), build));
    let (tests, handler) = ("the unit tests of the handler", "the handler");
    let mut add = |path, purpose, text: &str| {
        project.add(path, purpose, Content::Text(text.to_owned()));
    };
    match language {
        Language::Rust => {
            add("src/main.rs", "the handler and its unit tests", text!("function/rust/main.rs"));
            add("Cargo.toml", "the package of the function", text!("function/rust/Cargo.toml"));
            add(".gitignore", "the files that git ignores", "/target\n/.weir\n/.aws-sam\n");
        }
        Language::Python => {
            add("function/app.py", handler, text!("function/python/app.py"));
            add("test_app.py", tests, text!("function/python/test_app.py"));
            add(".gitignore", "the files that git ignores", "__pycache__/\n/.weir\n/.aws-sam\n");
        }
        Language::Node => {
            add("function/app.mjs", handler, text!("function/node/app.mjs"));
            add("app.test.mjs", tests, text!("function/node/app.test.mjs"));
        }
    }
    project
}

/// Returns the project of a pipeline. Its functions are programs in the folder of `weir`.
fn of_job(
    table: &Table,
    texts: &Texts,
    mut values: Values<'static>,
    programs: &[(&'static str, &'static str)],
) -> Project {
    let other_system = text!("every-kind/other-system.txt").trim_end().to_owned();
    let (system, other_system) = match env::consts::OS {
        "linux" => ("Linux", String::new()),
        "macos" => ("macOS", other_system),
        other => (other, other_system),
    };
    let note = vec![
        ("system", system.to_owned()),
        ("architecture", architecture().to_owned()),
        ("other_system", other_system),
    ];
    values.push(("programs", fill(text!("every-kind/programs.txt"), &note).trim_end().to_owned()));
    let mut project = of_texts(texts, &all_values(table, values, ""));
    for (name, path) in programs {
        project.add(path, "the function, ready to run", Content::Program(name));
    }
    project
}

/// Returns the files that every project has.
fn of_texts(texts: &Texts, values: &Values<'_>) -> Project {
    let mut project = Project::default();
    let text = |text| Content::Text(fill(text, values));
    project.add("template.yaml", "the SAM template", text(texts.template));
    project.add("README.md", "what to do next, and how to deploy", text(texts.readme));
    let test = Content::Script(fill(texts.test, values));
    project.add("test", "runs the project on this machine and checks it", test);
    project
}

/// Returns the values of a kind's own markers and of the markers that every kind has.
fn all_values(table: &Table, mut values: Values<'static>, build: &str) -> Values<'static> {
    let ttl_specification = table.ttl.as_ref().map(|ttl| {
        format!(r#"TimeToLiveSpecification: {{AttributeName: "{ttl}", Enabled: true}}"#)
    });
    values.extend([
        ("table", table.name.clone()),
        ("key", table.key.name.clone()),
        ("attributes", definitions(table.key_attributes())),
        ("key_schema", table.key_schema()),
        ("item", table.example()),
        ("ttl_specification", ttl_specification.unwrap_or_default()),
        ("architecture", architecture().to_owned()),
        ("build", build.to_owned()),
        ("start", text!("every-kind/test-start.sh").trim_end().to_owned()),
    ]);
    let deployment = fill(text!("every-kind/deployment.txt"), &values).trim_end().to_owned();
    values.push(("deployment", deployment));
    values
}

/// Returns the processor architecture of this machine, by Lambda's name.
fn architecture() -> &'static str {
    if env::consts::ARCH == "aarch64" { "arm64" } else { "x86_64" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maximum number of lines of a template and of a test. Users should be able to read them.
    const TEMPLATE_LINES_MAX: usize = 120;
    const TEST_LINES_MAX: usize = 30;
    const README_LINES_MAX: usize = 60;

    fn attribute(text: &str) -> KeyAttribute {
        text.parse().unwrap()
    }

    fn table(key: &str, sort: Option<&str>, ttl: Option<&str>) -> Table {
        let ttl = ttl.map(str::to_owned);
        Table::new("my.table", attribute(key), sort.map(attribute), ttl).unwrap()
    }

    /// Returns the projects of every kind for a table.
    fn projects(table: &Table) -> Vec<Project> {
        let copies = Copies {
            table: Table::new("copies", attribute("a:N"), Some(attribute("b:B")), None).unwrap(),
            reference: "origin".to_owned(),
            attribute: "label".to_owned(),
        };
        let languages = [Language::Rust, Language::Python, Language::Node];
        let functions = languages.map(|language| function(table, language));
        let jobs = [
            archive(table),
            counters(table, "sums", 7),
            versions(table).unwrap(),
            fan_out(table, &copies).unwrap(),
            migration(table, "my-target"),
        ];
        jobs.into_iter().chain(functions).collect()
    }

    /// Returns whether a text contains a marker, such as `{{name}}`.
    fn has_marker(text: &str) -> bool {
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        };
        text.split("{{")
            .skip(1)
            .any(|rest| rest.split_once("}}").is_some_and(|(name, _)| is_name(name)))
    }

    #[test]
    fn files_are_short_and_have_no_marker_left() {
        let mut count = 0;
        for table in [
            table("id:S", None, None),
            table("pk:S", Some("sk:N"), Some("ttl")),
            table("größe x:B", Some("b:B"), Some("a:b")),
        ] {
            for project in projects(&table) {
                for file in project.files() {
                    let (Content::Text(text) | Content::Script(text)) = &file.content else {
                        continue;
                    };
                    count += 1;
                    assert!(!has_marker(text), "{}:\n{text}", file.path);
                    let most = match file.path {
                        "template.yaml" => TEMPLATE_LINES_MAX,
                        "README.md" => README_LINES_MAX,
                        "test" => TEST_LINES_MAX,
                        _ => usize::MAX,
                    };
                    let lines = text.lines().count();
                    assert!(lines <= most, "{}: {lines} lines\n{text}", file.path);
                }
            }
        }
        assert!(count > 60, "{count}");
        assert!(has_marker("a {{b}}") && !has_marker("{{a b}} {{"));
    }

    #[test]
    fn what_cannot_be_copied_is_refused() {
        let origins = table("id:S", None, None);
        let copies = |key: &str, reference: &str, attribute: &str| Copies {
            table: Table::new("copies", key.parse().unwrap(), None, None).unwrap(),
            reference: reference.to_owned(),
            attribute: attribute.to_owned(),
        };
        for (copies, part) in [
            (copies("id:S", "origin", "name"), None),
            (copies("id:S", "id", "name"), None),
            (copies("id:N", "id", "name"), Some("has type S")),
            (copies("id:S", "origin", "origin"), Some("with --attribute")),
            (copies("a:S", "origin", "id"), Some("with --attribute")),
        ] {
            let made = fan_out(&origins, &copies).map_err(|error| error.to_string());
            match (made, part) {
                (Ok(_), None) => {}
                (Err(said), Some(part)) => assert!(said.contains(part), "{said}"),
                (made, _) => panic!("{copies:?}: {made:?}"),
            }
        }
    }

    #[test]
    fn a_migration_has_a_name_that_it_may_have() {
        assert_eq!(migration_name("My.Table_1"), "my-table-1-1");
        assert_eq!(migration_name("_orders"), "orders-1");
        assert_eq!(migration_name("___"), "table-1");
        assert!(migration_name(&"x".repeat(255)).len() <= 64);
    }
}
