//! An evaluated value of a template, and its conversion to a string, number or boolean.

use std::ops::RangeInclusive;

use crate::{
    diagnostic::{Findings, Span},
    syntax::node::Node,
    syntax::plain_scalar,
};

/// A value after all of its intrinsic functions have been evaluated.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) at: Span,
    pub(crate) data: Data,
}

/// The data of a value.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// `AWS::NoValue`, which removes the property.
    Absent,
    Text(String),
    List(Vec<Value>),
    /// The stream of the table with this logical id. The stream's ARN is unknown before the table
    /// exists.
    Stream(String),
    /// A reference to a value that exists only on AWS: `Resource`, `Resource.Attribute`, a dynamic
    /// reference such as `{{resolve:ssm:name}}`, or a CloudFormation function such as `!ImportValue
    /// name`.
    Elsewhere(String),
}

impl Value {
    /// Returns a description for a message.
    pub(crate) fn description(&self) -> String {
        match &self.data {
            Data::Absent => "nothing".to_owned(),
            Data::Text(text) => format!("`{text}`"),
            Data::List(_) => "a list".to_owned(),
            Data::Stream(table) => format!("the stream ARN of `{table}`"),
            Data::Elsewhere(name) => format!("`{name}`"),
        }
    }

    /// Returns the reference if its value is unknown; `None` if the value is known.
    pub(crate) fn reference(&self) -> Option<String> {
        match &self.data {
            Data::Elsewhere(name) => Some(name.clone()),
            Data::Stream(table) => Some(format!("{table}.StreamArn")),
            Data::Absent | Data::Text(_) | Data::List(_) => None,
        }
    }

    /// Returns the string. Warns if the value is unknown, and reports an error if it is not a
    /// string.
    pub(crate) fn text(self, findings: &Findings<'_>) -> Option<String> {
        match self.data {
            Data::Text(text) => Some(text),
            Data::Stream(_) | Data::Elsewhere(_) if findings.runs_on_aws() => None,
            Data::Stream(table) => {
                warn_of_stream(&table, self.at, findings);
                None
            }
            Data::Elsewhere(name) => {
                findings.warning(
                    self.at,
                    format!("`{name}` is known only on AWS, so it is omitted"),
                    "use a parameter of the template for the value, and set it with `--parameter NAME=VALUE`",
                );
                None
            }
            Data::Absent | Data::List(_) => {
                findings.error(
                    self.at,
                    format!("expected a string, found {}", self.description()),
                    "write one value",
                );
                None
            }
        }
    }
}

/// Warns that a string contains a stream's ARN, which is unknown before the table exists.
pub(crate) fn warn_of_stream(table: &str, at: Span, findings: &Findings<'_>) {
    findings.warning(
        at,
        format!(
            "the stream ARN of `{table}` is not known before the table exists, so it cannot be a \
             string here"
        ),
        format!(
            "use the ARN only as `Stream:` of an event; elsewhere pass the table's name with \
             `!Ref {table}`, and get the ARN with DescribeTable"
        ),
    );
}

/// Parses a whole number. `range` includes both ends.
pub(crate) fn integer(
    text: &str,
    at: Span,
    name: &str,
    range: &RangeInclusive<i64>,
    findings: &Findings<'_>,
) -> Option<i64> {
    let help = || format!("write a whole number from {} to {}", range.start(), range.end());
    // SAM also accepts notations such as `0x10` and `1_000`.
    let typed = plain_scalar::typed(text.trim());
    match typed.as_deref().unwrap_or(text.trim()).parse::<i64>() {
        Ok(number) if range.contains(&number) => Some(number),
        Ok(number) => {
            let side = if number < *range.start() { "too small" } else { "too large" };
            findings.error(at, format!("{name} {number} is {side}"), help());
            None
        }
        Err(_) => {
            findings.error(at, format!("{name} must be a whole number, not `{text}`"), help());
            None
        }
    }
}

/// Parses a boolean. The notations of SAM's YAML parser (YAML 1.1) and of CloudFormation are
/// accepted.
pub(crate) fn boolean(text: &str, at: Span, name: &str, findings: &Findings<'_>) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Some(true),
        "false" | "no" | "off" => Some(false),
        _ => {
            findings.error(
                at,
                format!("{name} must be true or false, not `{text}`"),
                "write `true` or `false`",
            );
            None
        }
    }
}

/// Parses a string that must be one of the words in `choices`.
pub(crate) fn one_of<T: Copy>(
    text: &str,
    at: Span,
    name: &str,
    choices: &[(&str, T)],
    findings: &Findings<'_>,
) -> Option<T> {
    if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text) {
        return Some(*choice);
    }
    let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    findings.error(
        at,
        format!("{name} cannot be `{text}`"),
        format!("write {}", crate::diagnostic::listed(words)),
    );
    None
}

/// Returns the string of a scalar. An intrinsic function is not allowed, for example in a logical
/// id or a parameter's type.
pub(crate) fn literal<'n>(node: &'n Node, name: &str, findings: &Findings<'_>) -> Option<&'n str> {
    let text = node.as_text();
    if text.is_none() {
        findings.error(
            node.at,
            format!("{name} must be a plain string, not {}", node.description()),
            "write the string itself",
        );
    }
    text
}
