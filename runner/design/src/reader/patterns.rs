//! Parsing of access patterns, and checks of their commands against tables and indexes.

use serde_json::{Map, Value};
use template::Span;
use template::diagnostic::{Findings, listed, similar};
use template::document::Node;

use crate::command::{Action, Command, Operation, place_of, placeholder_mistakes};
use crate::data_model::{AccessPattern, DataModel, Place, Table};
use crate::reader::{items, list, text};

/// A command in a model file.
#[derive(Clone, Copy)]
struct Written<'c> {
    /// The text of the command.
    text: &'c str,
    /// The position of the command in the file.
    at: Span,
    findings: &'c Findings<'c>,
}

impl Written<'_> {
    /// Returns the position of a word of the command.
    fn place(&self, word: &str) -> Span {
        place_of(self.findings, self.at, self.text, word)
    }

    /// Reports a mistake at a member of a JSON object in the command. In a JSON model file, the
    /// quotes of the member are escaped.
    fn error_at_member(&self, name: &str, message: String, help: String) {
        let quoted = self.place(&format!("\"{name}\""));
        let at = if quoted == self.at { self.place(name) } else { quoted };
        self.findings.error(at, message, help);
    }

    /// Reports a mistake at a word.
    fn error(&self, word: &str, message: String, help: String) {
        self.findings.error(self.place(word), message, help);
    }
}

/// Parses an access pattern, and adds it to the model.
pub(super) fn read(model: &mut DataModel, node: &Node, findings: &Findings<'_>) {
    let name_at = node.get("pattern").map_or(node.at, |name| name.at);
    let number = |key: &str| text(node, key).parse::<f64>().ok();
    let own = |key: &str| node.get(key).and_then(Node::as_text).map(str::to_owned);
    let position = model.patterns.len();
    let accept = list(node.get("accept")).iter();
    let mut pattern = AccessPattern {
        pattern: text(node, "pattern").to_owned(),
        description: text(node, "description").to_owned(),
        index: own("table").zip(own("index")),
        reason: own("reason"),
        average: number("average_per_second"),
        peak: number("peak_per_second"),
        items: number("items_per_request"),
        busiest_share: number("busiest_share"),
        accept: accept.filter_map(Node::as_text).map(str::to_owned).collect(),
        command: None,
        implementation: text(node, "implementation").to_owned(),
    };
    check_names(model, node, findings);
    check_rates(&pattern, node, findings);
    if let Some(implementation) = node.get("implementation")
        && let Some(text) = implementation.as_text()
    {
        let written = Written { text, at: implementation.at, findings };
        pattern.command = command(model, node, written);
        model.places.insert(Place::Command(position), implementation.at);
    }
    model.places.insert(Place::Pattern(position), name_at);
    model.patterns.push(pattern);
}

/// Reports a peak that is below the average.
fn check_rates(pattern: &AccessPattern, node: &Node, findings: &Findings<'_>) {
    let Some((average, peak)) = pattern.average.zip(pattern.peak) else { return };
    if peak < average {
        let at = node.get("peak_per_second").map_or(node.at, |peak| peak.at);
        let message =
            format!("`peak_per_second` is {peak}, below `average_per_second`, which is {average}");
        findings.error(at, message, format!("write at least {average}, or swap the two rates"));
    }
}

/// Reports a table, an index or an operation that does not exist.
fn check_names(model: &DataModel, node: &Node, findings: &Findings<'_>) {
    let table = node.get("table").and_then(|at| Some((at.as_text()?, at.at)));
    if let Some((name, at)) = table {
        match model.table(name) {
            None => items::report_unknown_table(model, name, at, findings),
            Some((_, table)) => {
                let index = node.get("index").and_then(|at| Some((at.as_text()?, at.at)));
                if let Some((index, at)) = index {
                    check_index(table, index, at, findings);
                }
            }
        }
    }
    if let Some(node) = node.get("dynamodb_operation")
        && let Some(name) = node.as_text()
        && Operation::from_name(name).is_none()
    {
        let help = match similar(name, Operation::names()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("write one of {}", listed(Operation::names())),
        };
        findings.error(node.at, format!("unknown operation `{name}`"), help);
    }
}

fn check_index(table: &Table, name: &str, at: Span, findings: &Findings<'_>) {
    if table.index(name).is_none() {
        let known = || table.indexes().map(|index| index.index_name.as_str());
        let help = match similar(name, known()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if known().next().is_none() => {
                "remove the name, or add the index to the table".to_owned()
            }
            None => format!("the table has {}", listed(known())),
        };
        let message = format!("the table `{}` has no index `{name}`", table.table_name);
        findings.error(at, message, help);
    }
}

/// Returns the command of a pattern, and reports its mistakes.
fn command(model: &DataModel, node: &Node, written: Written<'_>) -> Option<Command> {
    let command = match Command::parse(written.text) {
        Ok(command) => command,
        Err(error) => {
            let at = error.word().map_or(written.at, |word| written.place(&word));
            written.findings.error(at, error.to_string(), error.help());
            return None;
        }
    };
    let stated = text(node, "dynamodb_operation");
    if Operation::from_name(stated).is_some_and(|stated| stated != command.operation) {
        let found = command.operation.name();
        written.error(
            command.operation.command(),
            format!("`dynamodb_operation` is {stated}, but the command runs {found}"),
            format!("write `{found}`, or correct the command"),
        );
    }
    check_table(model, &command, node, written.findings);
    if let Some(stated) = node.get("index").and_then(Node::as_text)
        && command.index() != Some(stated)
    {
        let found = command.index().map_or("no index".to_owned(), |index| format!("`{index}`"));
        written.error(
            command.index().unwrap_or_default(),
            format!("`index` is `{stated}`, but the command uses {found}"),
            format!("add `--index-name {stated}`, or correct `index`"),
        );
    }
    check_actions(model, &command, written);
    Some(command)
}

/// Reports a table that a pattern states, but its command does not use.
fn check_table(model: &DataModel, command: &Command, node: &Node, findings: &Findings<'_>) {
    let Some(node) = node.get("table") else { return };
    let (tables, stated) = (command.tables(), node.as_text().unwrap_or_default());
    // A table that does not exist in the model is reported elsewhere.
    let is_unknown = |table: &&str| model.table(table).is_none();
    let is_used = tables.is_empty() || tables.contains(&stated);
    if is_used || is_unknown(&stated) || tables.iter().any(is_unknown) {
        return;
    }
    let used = listed(tables).replace(" or ", " and ");
    let message = format!("`table` is `{stated}`, but the command uses {used}");
    findings.error(node.at, message, "correct `table`, or the command");
}

/// Reports mistakes in the tables, indexes, keys, types and placeholders of a command.
fn check_actions(model: &DataModel, command: &Command, written: Written<'_>) {
    let actions = command.actions();
    if actions.is_empty() {
        let message = "the command names no table";
        written.findings.error(written.at, message, "write the `TableName` of each operation");
    }
    for Action { table, parameters } in actions {
        for (word, message, help) in placeholder_mistakes(parameters) {
            written.error(&word, message, help);
        }
        for option in ["Key", "Item", "ExpressionAttributeValues"] {
            let values = parameters.get(option).and_then(Value::as_object);
            check_types(values.into_iter().flatten(), written);
        }
        let Some((_, table)) = model.table(table) else {
            items::report_unknown_table(model, table, written.place(table), written.findings);
            continue;
        };
        if let Some(index) = parameters.get("IndexName").and_then(Value::as_str) {
            check_index(table, index, written.place(index), written.findings);
        }
        let one = |name: &str| parameters.get(name).and_then(Value::as_object);
        let many = parameters.get("Keys").and_then(Value::as_array);
        for key in
            one("Key").into_iter().chain(many.into_iter().flatten().filter_map(Value::as_object))
        {
            check_key(table, key, true, written);
        }
        if let Some(item) = one("Item") {
            check_key(table, item, false, written);
        }
    }
}

/// Reports values without a type.
fn check_types<'v>(values: impl Iterator<Item = (&'v String, &'v Value)>, written: Written<'_>) {
    for (name, value) in values {
        let members = value.as_object().filter(|members| members.len() == 1);
        let is_typed = members.is_some_and(|members| {
            members.keys().all(|name| model::AttributeType::from_descriptor(name).is_some())
        });
        if !is_typed {
            let (kind, shown) = match value {
                Value::Number(number) => ("N", format!("\"{number}\"")),
                Value::Bool(flag) => ("BOOL", flag.to_string()),
                Value::String(text) => ("S", format!("\"{text}\"")),
                _ => ("S", "\"…\"".to_owned()),
            };
            let help = format!("write \"{name}\": {{\"{kind}\": {shown}}}");
            written.error_at_member(name, format!("the value of `{name}` has no type"), help);
        }
    }
}

/// Reports key attributes that are missing or have the wrong type, and attributes that do not
/// belong to the key.
fn check_key(table: &Table, key: &Map<String, Value>, is_key_alone: bool, written: Written<'_>) {
    let names = table.key();
    for name in &names {
        let wanted = table.type_of(name).map_or("S", |kind| kind.descriptor());
        let found = key.get(*name).map(|value| value.get(wanted).is_some());
        let help = format!("write \"{name}\": {{\"{wanted}\": \"…\"}}");
        match found {
            Some(true) => {}
            Some(false) => {
                let message = format!("the key attribute `{name}` must have the type {wanted}");
                written.error_at_member(name, message, help);
            }
            None => {
                let option = if is_key_alone { "--key" } else { "--item" };
                let owner = &table.table_name;
                let message = format!("the key attribute `{name}` of `{owner}` is missing");
                written.error(option, message, help);
            }
        }
    }
    for name in key.keys().filter(|name| is_key_alone && !names.contains(&name.as_str())) {
        let message = format!("`{name}` is not a key attribute of `{}`", table.table_name);
        let has = listed(names.iter().copied()).replace(" or ", " and ");
        let help = match similar(name, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`? A key has only {has}"),
            None => format!("a key has only {has}"),
        };
        written.error_at_member(name, message, help);
    }
}
