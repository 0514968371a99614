//! The options of the AWS CLI, with the kinds of their values.

use serde_json::{Map, Value};

use crate::command::Command;
use crate::command::error::CommandError;
use crate::command::operation::Operation;

/// The kind of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    /// A JSON object. The shorthand `name=value,…` is also accepted.
    Object,
    /// A JSON list.
    List,
    /// A flag, which the prefix `--no-` negates.
    Flag,
    /// An option of the AWS CLI itself with a value. It is not part of the request.
    ClientValue,
    /// A flag of the AWS CLI itself. It is not part of the request.
    ClientFlag,
}

const OPTIONS: [(&str, Kind); 39] = [
    ("table-name", Kind::Text),
    ("index-name", Kind::Text),
    ("key-condition-expression", Kind::Text),
    ("filter-expression", Kind::Text),
    ("projection-expression", Kind::Text),
    ("update-expression", Kind::Text),
    ("condition-expression", Kind::Text),
    ("select", Kind::Text),
    ("return-values", Kind::Text),
    ("return-values-on-condition-check-failure", Kind::Text),
    ("return-consumed-capacity", Kind::Text),
    ("return-item-collection-metrics", Kind::Text),
    ("client-request-token", Kind::Text),
    ("limit", Kind::Number),
    ("segment", Kind::Number),
    ("total-segments", Kind::Number),
    ("key", Kind::Object),
    ("item", Kind::Object),
    ("expression-attribute-names", Kind::Object),
    ("expression-attribute-values", Kind::Object),
    ("exclusive-start-key", Kind::Object),
    ("request-items", Kind::Object),
    ("transact-items", Kind::List),
    ("scan-index-forward", Kind::Flag),
    ("consistent-read", Kind::Flag),
    ("max-items", Kind::ClientValue),
    ("page-size", Kind::ClientValue),
    ("endpoint-url", Kind::ClientValue),
    ("region", Kind::ClientValue),
    ("profile", Kind::ClientValue),
    ("output", Kind::ClientValue),
    ("query", Kind::ClientValue),
    ("color", Kind::ClientValue),
    ("cli-read-timeout", Kind::ClientValue),
    ("cli-connect-timeout", Kind::ClientValue),
    ("no-paginate", Kind::ClientFlag),
    ("no-cli-pager", Kind::ClientFlag),
    ("no-verify-ssl", Kind::ClientFlag),
    ("debug", Kind::ClientFlag),
];

/// Returns the names of all options.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(name, _)| *name)
}

/// Parses the words of a command into a request.
pub(super) fn command(all: &[String]) -> Result<Command, CommandError> {
    let mut rest = all.iter();
    let begins = [rest.next(), rest.next()].map(|word| word.map_or("", String::as_str));
    if begins != ["aws", "dynamodb"] {
        return Err(CommandError::NotDynamoDb(begins.join(" ").trim().to_owned()));
    }
    let name = rest.next().map_or("", String::as_str);
    let operation = Operation::from_command(name)
        .ok_or_else(|| CommandError::UnknownOperation(name.to_owned()))?;
    let mut command =
        Command { operation, request: Map::new(), reads_all_pages: true, items_max: None };
    let mut given: Vec<&str> = Vec::new();
    while let Some(word) = rest.next() {
        let written =
            word.strip_prefix("--").ok_or_else(|| CommandError::UnexpectedWord(word.clone()))?;
        let (name, attached) = match written.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (written, None),
        };
        let (option, kind, is_on) = find(name)?;
        if given.contains(&option) {
            return Err(CommandError::Twice(option.to_owned()));
        }
        given.push(option);
        if matches!(kind, Kind::Flag | Kind::ClientFlag) {
            match kind {
                Kind::Flag => drop(command.request.insert(parameter(option), Value::Bool(is_on))),
                _ if option == "no-paginate" => command.reads_all_pages = false,
                _ => {}
            }
            continue;
        }
        let value = attached.or_else(|| rest.next().cloned());
        let value = value.ok_or_else(|| CommandError::NoValue(option.to_owned()))?;
        command.take(option, kind, &value)?;
    }
    match operation.required().iter().find(|option| !given.contains(*option)) {
        Some(option) => Err(CommandError::Missing(operation, option)),
        None => Ok(command),
    }
}

/// Returns the option with this name, its kind, and the value of a flag.
fn find(name: &str) -> Result<(&'static str, Kind, bool), CommandError> {
    let known = |name: &str| OPTIONS.iter().find(|(option, _)| *option == name);
    if let Some((option, kind)) = known(name) {
        return Ok((option, *kind, true));
    }
    match name.strip_prefix("no-").and_then(known) {
        Some((option, Kind::Flag)) => Ok((option, Kind::Flag, false)),
        _ => Err(CommandError::UnknownOption(name.to_owned())),
    }
}

impl Command {
    /// Adds an option with its value to the request.
    fn take(&mut self, option: &str, kind: Kind, value: &str) -> Result<(), CommandError> {
        let value = match kind {
            Kind::Text => Value::from(value),
            Kind::Number => Value::from(number(option, value)?),
            Kind::Object => match shorthand(value) {
                Some(object) => Value::Object(object),
                None => json(option, value, Value::is_object, "an object")?,
            },
            Kind::List => json(option, value, Value::is_array, "a list")?,
            Kind::ClientValue => {
                match option {
                    "max-items" => self.items_max = Some(number(option, value)?),
                    "page-size" => {
                        let size = Value::from(number(option, value)?);
                        self.request.insert("Limit".to_owned(), size);
                    }
                    _ => {}
                }
                return Ok(());
            }
            Kind::Flag | Kind::ClientFlag => return Ok(()),
        };
        // With `--limit` or `--exclusive-start-key`, the AWS CLI reads only one page.
        if matches!(option, "limit" | "exclusive-start-key") {
            self.reads_all_pages = false;
        }
        self.request.insert(parameter(option), value);
        Ok(())
    }
}

fn number(option: &str, value: &str) -> Result<u64, CommandError> {
    let wrong = |_| CommandError::NotNumber { option: option.to_owned(), value: value.to_owned() };
    value.parse().map_err(wrong)
}

fn json(
    option: &str,
    value: &str,
    is_wanted: fn(&Value) -> bool,
    wanted: &'static str,
) -> Result<Value, CommandError> {
    let value: Value = serde_json::from_str(value).map_err(|error| CommandError::NotJson {
        option: option.to_owned(),
        reason: error.to_string(),
    })?;
    match is_wanted(&value) {
        true => Ok(value),
        false => Err(CommandError::OtherJson { option: option.to_owned(), wanted }),
    }
}

/// Parses the shorthand of the AWS CLI for a map of strings: `#s=status,#t=type`.
fn shorthand(value: &str) -> Option<Map<String, Value>> {
    let is_plain = |text: &str| !text.is_empty() && !text.contains(['{', '}', '[', ']', '"', ':']);
    let members = value.split(',').map(|member| {
        let (name, text) = member.trim().split_once('=')?;
        (is_plain(name) && is_plain(text)).then(|| (name.to_owned(), Value::from(text)))
    });
    members.collect()
}

/// Returns the API parameter of an option: `table-name` becomes `TableName`.
fn parameter(option: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    };
    option.split('-').map(word).collect()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the cases are in a file")]
mod tests {
    use super::*;
    use crate::command::words;

    /// Returns the request of a command, or its error with the correction, as text.
    fn shown(text: &str) -> String {
        match words::split(text).and_then(|words| command(&words)) {
            Ok(command) => {
                let Command { operation, request, reads_all_pages, items_max } = command;
                let pages = if reads_all_pages { "all pages" } else { "one page" };
                let items = items_max.map_or(String::new(), |most| format!(", at most {most}"));
                format!("{} {} ({pages}{items})", operation.name(), Value::Object(request))
            }
            Err(error) => format!("{error}; {}", error.help()),
        }
    }

    #[test]
    fn commands_become_requests() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/commands.txt");
        let text = std::fs::read_to_string(file).unwrap();
        let mut found = String::new();
        for case in text.split("\n\n").filter(|case| !case.trim().is_empty()) {
            let command = case.split("\n=> ").next().unwrap_or_default().trim();
            found.push_str(&format!("{command}\n=> {}\n\n", shown(command)));
        }
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(file, &found).unwrap();
            return;
        }
        assert_eq!(
            found, text,
            "the result differs from the expected file; UPDATE=1 rewrites the file"
        );
    }
}
