//! A resolved value of a template, and its conversion to text, number or boolean.

use std::ops::RangeInclusive;

use crate::{
    diagnostic::{Findings, Span},
    syntax::node::Node,
    syntax::plain_scalar,
};

/// A value after evaluation of every intrinsic function in it.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) at: Span,
    pub(crate) data: Data,
}

/// The data of a value.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// `AWS::NoValue`: as if the property was not in the template.
    Absent,
    Text(String),
    List(Vec<Value>),
    /// The stream of the table with this logical id; its ARN is unknown before the table exists.
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

    /// Returns the reference if the value is unknown here; `None` if it is known.
    pub(crate) fn reference(&self) -> Option<String> {
        match &self.data {
            Data::Elsewhere(name) => Some(name.clone()),
            Data::Stream(table) => Some(format!("{table}.StreamArn")),
            Data::Absent | Data::Text(_) | Data::List(_) => None,
        }
    }

    /// Returns the text. An unknown value gives a warning, and any other value an error.
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

/// Warns that a text has a stream's ARN, which is unknown here.
pub(crate) fn warn_of_stream(table: &str, at: Span, findings: &Findings<'_>) {
    findings.warning(
        at,
        format!(
            "the stream ARN of `{table}` is not known before the table exists, so it cannot be a \
             string here"
        ),
        format!(
            "use it as `Stream:` of an event; elsewhere give the table's name with `!Ref {table}` \
             and ask DescribeTable for its stream"
        ),
    );
}

/// Parses a whole number in the range, both ends inclusive.
pub(crate) fn integer(
    text: &str,
    at: Span,
    name: &str,
    range: &RangeInclusive<i64>,
    findings: &Findings<'_>,
) -> Option<i64> {
    let help = || format!("write a whole number from {} to {}", range.start(), range.end());
    // SAM also reads `0x10` and `1_000` as numbers.
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

/// Parses a boolean, in the spellings of SAM's YAML parser (YAML 1.1) and CloudFormation.
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

/// Parses a text that must be one of these.
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

/// Returns the text of a scalar that must not be an intrinsic function, such as a logical id or a
/// parameter's type.
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
