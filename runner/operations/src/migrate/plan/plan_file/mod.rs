//! Parses plan files: converts YAML into a plan, and reports the file position of every error.
//!
//! `plan::check` checks the plan against its tables. [`PlanFile::show`] adds file positions to the
//! errors of this check.

mod split;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rules::migration::plan::{
    Backfill, FUNCTION_SECONDS, Kind, Output, Plan, SEGMENTS_MAX, SETTLE_SECONDS, Source,
};
use rules::migration::{KeyTemplate, PlanError, Transform};

use crate::migrate::failure::{Result, fatal};
use template::Span;
use template::diagnostic::{Findings, listed, similar};
use template::document::{self, Kind as NodeKind, Node};

/// Maximum size of a plan file in bytes. A typical plan has fewer than 100 lines.
const BYTES_MAX: usize = 256 * 1024;
/// Default number of scan segments of a table. Eight segments nearly use Lambda's highest
/// parallelization factor, 10, and need few tasks in the control table.
const SEGMENTS: u32 = 8;
/// Default number of seconds for which a writer may use a route that it has read.
const GATE_SECONDS: u32 = 2;
/// Maximum length of a migration's name, which is part of keys and of file names.
const NAME_LENGTH_MAX: usize = 64;

/// Valid lengths of a table's name. Source: DynamoDB API reference, `CreateTable`.
const TABLE_LENGTH: RangeInclusive<usize> = 3..=255;

/// A plan, and the positions of its elements in the plan file.
pub(crate) struct PlanFile {
    pub(crate) plan: Plan,
    pub(crate) name: String,
    text: String,
    places: BTreeMap<String, Span>,
}

struct Reader<'f, 't> {
    kind: Kind,
    findings: &'f Findings<'t>,
    places: BTreeMap<String, Span>,
}

impl PlanFile {
    /// Parses the text of a plan file; `name` is the file's name in messages.
    ///
    /// # Errors
    /// When the file has errors. The message lists all of them.
    pub(crate) fn read(name: &str, text: &str) -> Result<Self> {
        // Editors on Windows write a byte order mark, which the YAML parser rejects.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.trim().is_empty() || text.len() > BYTES_MAX {
            return Err(fatal!(
                "`{name}` is not a plan: it has {} bytes; write `migration: NAME`, `kind: restructure` and `from:` (docs/migration.md)",
                text.len()
            ));
        }
        let findings = Findings::new(name, text);
        let mut reader =
            Reader { kind: Kind::Restructure, findings: &findings, places: BTreeMap::new() };
        let root = document::parse(text, &findings);
        let plan = root.as_ref().and_then(|root| reader.plan(root));
        let places = reader.places;
        match plan {
            Some(plan) if !findings.has_errors() => {
                Ok(Self { plan, name: name.to_owned(), text: text.to_owned(), places })
            }
            _ => Err(findings.into_parts().0.to_string().into()),
        }
    }

    /// Formats errors that a check against the tables has found, with their positions in the file.
    pub(crate) fn show(&self, errors: &[PlanError]) -> String {
        let findings = Findings::new(&self.name, &self.text);
        for error in errors {
            let place = self.places.get(&error.place).copied();
            let at = place.unwrap_or(Span { line: 1, column: 1, width: 1 });
            let help = match error.reason.starts_with("there is no table") {
                true => format!("create it first, with its stream, or correct `{}`", error.place),
                false => format!("correct `{}`", error.place),
            };
            findings.error(at, error.reason.clone(), help);
        }
        findings.into_parts().0.to_string()
    }
}

impl Reader<'_, '_> {
    fn plan(&mut self, root: &Node) -> Option<Plan> {
        let known = [
            "migration",
            "kind",
            "from",
            "inverse",
            "backfill",
            "segments",
            "gate_seconds",
            "settle_seconds",
            "function_seconds",
            "route",
        ];
        self.known(root, &known);
        let migration = self.name(root, "migration");
        let route = root.get("route").and_then(|_| self.name(root, "route"));
        let kind = self.kind(root);
        self.kind = kind.unwrap_or(Kind::Restructure);
        if self.kind == Kind::Purge
            && let Some(node) = root.get("inverse")
        {
            let help = "remove `inverse`: a purge cannot be reverted";
            self.findings.error(node.at, "`inverse` does not apply to a purge".to_owned(), help);
        }
        if self.kind == Kind::Split
            && let Some(node) = root.get("inverse")
        {
            let help = "remove `inverse`: a revert assembles documents from their parts";
            self.findings.error(node.at, "`inverse` does not apply to a split".to_owned(), help);
        }
        let from = self.sources(root, "from", true);
        let inverse = match self.kind {
            Kind::Split => from.as_deref().map(split::inverse),
            _ => self.sources(root, "inverse", false),
        };
        let backfill = self.backfill(root);
        let segments = self.number(root, "segments", SEGMENTS, 1..=SEGMENTS_MAX);
        let gate_seconds = self.number(root, "gate_seconds", GATE_SECONDS, 0..=3600);
        let settle_seconds = self.number(root, "settle_seconds", SETTLE_SECONDS, 0..=600);
        let seconds = FUNCTION_SECONDS;
        let function_seconds = self.number(root, "function_seconds", seconds, 5..=900);
        Some(Plan {
            migration: migration?,
            kind: kind?,
            from: from?,
            inverse: inverse.unwrap_or_default(),
            backfill,
            segments,
            gate_seconds,
            settle_seconds,
            function_seconds,
            route,
        })
    }

    fn known(&self, node: &Node, known: &[&str]) {
        if !matches!(node.kind, NodeKind::Map(_)) {
            let help = format!("write a mapping with {}", listed(known.iter().copied()));
            self.findings.error(
                node.at,
                format!("expected a mapping, found {}", node.description()),
                help,
            );
        }
        for entry in node.entries().iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let meant = similar(&entry.key, known.iter().copied());
            let help = meant.map_or_else(
                || format!("allowed are {}", listed(known.iter().copied())),
                |meant| format!("did you mean `{meant}`?"),
            );
            self.findings.error(entry.key_at, format!("unknown key `{}`", entry.key), help);
        }
    }

    fn text<'n>(&self, node: &'n Node, key: &str, example: &str) -> Option<&'n Node> {
        let Some(value) = node.get(key) else {
            let help = format!("write `{key}: {example}`");
            self.findings.error(node.at, format!("`{key}` is missing"), help);
            return None;
        };
        if value.as_text().is_none() {
            let message = format!("`{key}` must be a string, found {}", value.description());
            self.findings.error(value.at, message, format!("write `{key}: {example}`"));
            return None;
        }
        Some(value)
    }

    /// Returns the name of the migration or of its route, if the name is valid.
    fn name(&self, root: &Node, key: &str) -> Option<String> {
        let node = self.text(root, key, "orders-2026")?;
        let name = node.as_text()?;
        let is_name = (1..=NAME_LENGTH_MAX).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !is_name {
            let help = "write 1 to 64 of a-z, 0-9 and `-`, for example `orders-2026`";
            self.findings.error(node.at, format!("`{name}` is not a valid name of a {key}"), help);
        }
        is_name.then(|| name.to_owned())
    }

    /// Returns the node with the name of a table, if the name is valid.
    fn table<'n>(&self, node: &'n Node, key: &str, example: &str) -> Option<&'n Node> {
        let value = self.text(node, key, example)?;
        let name = value.as_text()?;
        let is_name = TABLE_LENGTH.contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        if !is_name {
            let help = "write 3 to 255 of a-z, A-Z, 0-9, `_`, `.` and `-`";
            self.findings.error(value.at, format!("`{name}` is not a valid name of a table"), help);
        }
        is_name.then_some(value)
    }

    fn kind(&self, root: &Node) -> Option<Kind> {
        let node = self.text(root, "kind", "restructure")?;
        match node.as_text() {
            Some("restructure") => return Some(Kind::Restructure),
            Some("in-place") => return Some(Kind::InPlace),
            Some("purge") => return Some(Kind::Purge),
            Some("split") => return Some(Kind::Split),
            _ => {}
        }
        let message = format!("unknown kind `{}`", node.as_text().unwrap_or_default());
        self.findings.error(
            node.at,
            message,
            "write `restructure`: items become items of other tables; `split`: documents become parts; `in-place`: items get other attributes; or `purge`: items are removed",
        );
        None
    }

    fn backfill(&self, root: &Node) -> Backfill {
        let Some(node) = root.get("backfill") else { return Backfill::Scan };
        match node.as_text() {
            Some("scan") => Backfill::Scan,
            Some("touch") if self.kind.is_in_place() => {
                let help = "remove `backfill`: an in-place change always uses the stream";
                let message = "`backfill: touch` does not apply to an in-place change".to_owned();
                self.findings.error(node.at, message, help);
                Backfill::Scan
            }
            Some("touch") => Backfill::Touch,
            _ => {
                let help = "write `scan`: items are read and copied; or `touch`: items are updated, and copied from the stream";
                let message = "unknown backfill".to_owned();
                self.findings.error(node.at, message, help);
                Backfill::Scan
            }
        }
    }

    fn number(&self, root: &Node, key: &str, default: u32, range: RangeInclusive<u32>) -> u32 {
        let Some(node) = root.get(key) else { return default };
        let number = node.as_text().and_then(|text| text.parse().ok());
        number.filter(|number| range.contains(number)).unwrap_or_else(|| {
            let help = format!("write a whole number from {} to {}", range.start(), range.end());
            self.findings.error(node.at, format!("`{key}` is out of range"), help);
            default
        })
    }

    /// Parses a boolean, which defaults to false.
    fn flag(&self, node: &Node, key: &str) -> bool {
        let Some(value) = node.get(key) else { return false };
        match value.as_text() {
            Some("true") => return true,
            Some("false") => return false,
            _ => {}
        }
        let message = format!("`{key}` must be true or false");
        self.findings.error(value.at, message, format!("write `{key}: true`"));
        false
    }

    fn list<'n>(&self, node: &'n Node, key: &str, required: bool) -> Option<&'n [Node]> {
        let Some(value) = node.get(key) else {
            if required {
                let help = format!("write `{key}:` and below it `  - ...`");
                self.findings.error(node.at, format!("`{key}` is missing"), help);
            }
            return None;
        };
        match &value.kind {
            NodeKind::List(nodes) if !nodes.is_empty() => Some(nodes),
            NodeKind::List(_) => {
                let help = match required {
                    true => {
                        format!(
                            "write each entry on its own line below `{key}:`, beginning with `- `"
                        )
                    }
                    false => format!("write an entry below `{key}:`, or remove `{key}`"),
                };
                self.findings.error(value.at, format!("`{key}` is empty"), help);
                None
            }
            _ => {
                let message = format!("`{key}` must be a list, found {}", value.description());
                self.findings.error(
                    value.at,
                    message,
                    "begin each entry on its own line with `- `",
                );
                None
            }
        }
    }

    fn sources(&mut self, root: &Node, key: &str, required: bool) -> Option<Vec<Source>> {
        let nodes = self.list(root, key, required)?;
        let sources = nodes.iter().enumerate().map(|(number, node)| {
            let place = format!("{key}[{number}]");
            let parts: &[&str] = match self.kind {
                Kind::Restructure => &["table", "items"],
                Kind::InPlace => &["table", "transform"],
                Kind::Purge => &["table", "where", "archive"],
                Kind::Split => &["table", "to", "key", "profile", "parts"],
            };
            self.known(node, parts);
            let table = self.table(node, "table", "orders");
            if let Some(table) = table {
                self.places.insert(format!("{place}.table"), table.at);
            }
            if self.kind.is_in_place() {
                let items = vec![self.in_place(node, table, &format!("{place}.items[0]"))?];
                let archive = self.kind == Kind::Purge && self.flag(node, "archive");
                let table = table?.as_text()?.to_owned();
                return Some(Source { table, items, split: None, archive });
            }
            if self.kind == Kind::Split {
                return self.split(node, table, &place);
            }
            let items = self.list(node, "items", true)?;
            let items = items
                .iter()
                .enumerate()
                .map(|(number, node)| self.output(node, &format!("{place}.items[{number}]")));
            let items: Vec<Option<Output>> = items.collect();
            let items = items.into_iter().collect::<Option<_>>()?;
            Some(Source { table: table?.as_text()?.to_owned(), items, split: None, archive: false })
        });
        let sources: Vec<Option<Source>> = sources.collect();
        sources.into_iter().collect()
    }

    /// Parses the transform or condition of a table that is changed in place.
    fn in_place(&mut self, node: &Node, table: Option<&Node>, place: &str) -> Option<Output> {
        let (name, example) = match self.kind {
            Kind::Purge => ("where", "'.tenant == \"acme\"'"),
            Kind::Restructure | Kind::InPlace | Kind::Split => {
                ("transform", "'.state //= \"open\"'")
            }
        };
        let program = self.text(node, name, example)?;
        let transform = self.program(program, &format!("{place}.transform"))?;
        let to = table?.as_text()?.to_owned();
        Some(Output { to, transform, key: BTreeMap::new() })
    }

    /// Parses a jq program, and checks its syntax.
    fn program(&mut self, program: &Node, place: &str) -> Option<String> {
        self.places.insert(place.to_owned(), program.at);
        let text = program.as_text()?;
        if let Err(error) = Transform::compile(text) {
            let at = self.inside(program, text, error.at);
            let help =
                "a transform is a jq program; docs/transforms.md lists the supported parts of jq";
            self.findings.error(at, error.reason, help);
        }
        Some(text.to_owned())
    }

    /// Parses the templates of a key, and checks the syntax of each template.
    fn key(&mut self, node: &Node, place: &str) -> BTreeMap<String, String> {
        let mut key = BTreeMap::new();
        for entry in node.get("key").map(Node::entries).unwrap_or_default() {
            let place = format!("{place}.key.{}", entry.key);
            self.places.insert(place, entry.value.at);
            if matches!(entry.value.kind, NodeKind::Map(_)) {
                let names = entry.value.entries().iter().map(|inner| inner.key.as_str());
                let meant =
                    format!("{}: '{{{}}}'", entry.key, names.collect::<Vec<_>>().join(", "));
                let what = "braces without quotation marks are a YAML mapping, not a template";
                let help = format!("write `{meant}`");
                self.findings.error(entry.value.at, what.to_owned(), help);
                continue;
            }
            let template = entry.value.as_text().unwrap_or_default();
            match KeyTemplate::parse(template) {
                Ok(_) => {
                    key.insert(entry.key.clone(), template.to_owned());
                }
                Err(error) => {
                    let help = "write a template, for example `CUSTOMER#{customerID}`";
                    self.findings.error(entry.value.at, error.to_string(), help);
                }
            }
        }
        key
    }

    fn output(&mut self, node: &Node, place: &str) -> Option<Output> {
        self.known(node, &["to", "transform", "key"]);
        let to = self.table(node, "to", "shop");
        if let Some(to) = to {
            self.places.insert(format!("{place}.to"), to.at);
        }
        let transform = match node.get("transform") {
            None => ".".to_owned(),
            Some(_) => {
                let program = self.text(node, "transform", "'{id, total}'")?;
                self.program(program, &format!("{place}.transform"))?
            }
        };
        let key = self.key(node, place);
        Some(Output { to: to?.as_text()?.to_owned(), transform, key })
    }

    /// Returns the file position of a byte in a program. If the file does not have the program
    /// unchanged on one line, returns the position of the program's beginning.
    fn inside(&self, node: &Node, program: &str, byte: usize) -> Span {
        let line = self.findings.source_line(node.at.line);
        let before = program.get(..byte).unwrap_or(program);
        match line.find(program) {
            Some(start) if !before.contains('\n') => {
                let head = line.get(..start).unwrap_or_default();
                let column = head.chars().count() + before.chars().count() + 1;
                Span { line: node.at.line, column, width: 1 }
            }
            _ => Span { width: 1, ..node.at },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_and_what_is_wrong_with_them() {
        let cases = include_str!("../../../../testdata/migrate/plans.txt");
        let mut checked = 0;
        for case in cases.split("\n====\n") {
            let (text, expected) = case.split_once("\n----\n").expect("a case has `----`");
            let read = match PlanFile::read("plan.yaml", text) {
                Ok(file) => serde_json::to_string(&file.plan).unwrap(),
                Err(errors) => errors.to_string(),
            };
            assert_eq!(read, expected.trim_end(), "{text}");
            checked += 1;
        }
        assert!(checked > 3);
    }

    /// Goal: a plan may have a byte order mark, and JSON is accepted as YAML.
    #[test]
    fn a_byte_order_mark_and_a_name_of_json_do_not_matter() {
        let json = r#"{"migration":"a","kind":"purge","from":[{"table":"orders","where":".x"}]}"#;
        let yaml =
            "migration: a\nkind: purge\nfrom:\n  - table: orders\n    where: .x\n".to_owned();
        for (name, text) in [
            ("plan.json", json.to_owned()),
            ("plan.json", format!("\u{feff}{json}")),
            ("plan.json", yaml.clone()),
            ("plan.yaml", format!("\u{feff}{yaml}")),
        ] {
            let read = PlanFile::read(name, &text);
            let plan = read.map(|file| serde_json::to_string(&file.plan).unwrap());
            let same = PlanFile::read("plan.yaml", &yaml)
                .map(|file| serde_json::to_string(&file.plan).unwrap());
            assert_eq!(plan, same, "{name} {text:?}");
            assert!(plan.is_ok(), "{plan:?}");
        }
        assert!(PlanFile::read("plan.json", &json.replace("}]", "},]")).is_err());
    }
}
