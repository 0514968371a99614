//! The values of a template's parameters. A value comes from the caller or from the parameter's
//! default, and must match the parameter's declaration.

use std::collections::BTreeMap;

use regex_lite::Regex;

use crate::{
    diagnostic::{Findings, Span, listed, similar},
    evaluation::value,
    syntax::node::{Entry, Kind, Node},
};

/// CloudFormation's maximum length of a parameter's value, in bytes.
const PARAMETER_BYTES_MAX: usize = 4_096;

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    Text(String),
    /// The value of a `CommaDelimitedList` or `List<...>`.
    List(Vec<String>),
    /// A value that is known only on AWS. The field is the parameter's name. For
    /// `AWS::SSM::Parameter::Value<...>`, it is the dynamic reference that CloudFormation would
    /// resolve.
    Elsewhere(String),
}

/// The prefix of parameter types whose value CloudFormation reads from Systems Manager.
const SSM_VALUE: &str = "AWS::SSM::Parameter::Value<";

const ATTRIBUTES: &[&str] = &[
    "AllowedPattern",
    "AllowedValues",
    "ConstraintDescription",
    "Default",
    "Description",
    "MaxLength",
    "MaxValue",
    "MinLength",
    "MinValue",
    "NoEcho",
    "Type",
];

/// Returns the names of all declared parameters, including parameters without a valid value.
pub(crate) fn names(section: Option<&Node>) -> impl Iterator<Item = &str> {
    section.map_or(&[][..], Node::entries).iter().map(|entry| entry.key.as_str())
}

/// Reads the section `Parameters`, and takes values from the caller or the defaults.
pub(crate) fn read(
    section: Option<&Node>,
    given: &BTreeMap<String, String>,
    findings: &Findings<'_>,
) -> BTreeMap<String, Parameter> {
    let declared: Vec<&str> = names(section).collect();
    for name in given.keys().filter(|name| !declared.contains(&name.as_str())) {
        let at = section.map_or(Span { line: 1, column: 1, width: 1 }, |node| node.at);
        let help = match similar(name, declared.iter().copied()) {
            Some(meant) => format!("give a value for `{meant}`"),
            None if declared.is_empty() => {
                "this template has no `Parameters:`; remove --parameter".to_owned()
            }
            None => format!("give values for {}", listed(declared.iter().copied())),
        };
        findings.error(
            at,
            format!("a value is given for the parameter `{name}`, but the template has no parameter with this name"),
            help,
        );
    }
    section
        .map_or(&[][..], Node::entries)
        .iter()
        .filter_map(|entry| Some((entry.key.clone(), parameter(entry, given, findings)?)))
        .collect()
}

fn parameter(
    entry: &Entry,
    given: &BTreeMap<String, String>,
    findings: &Findings<'_>,
) -> Option<Parameter> {
    let name = &entry.key;
    for attribute in entry.value.entries() {
        if !ATTRIBUTES.contains(&attribute.key.as_str()) {
            findings.error(
                attribute.key_at,
                format!("a parameter has no `{}`", attribute.key),
                format!("write {}", listed(ATTRIBUTES.iter().copied())),
            );
        }
    }
    let Some(kind) = entry.value.get("Type") else {
        findings.error(
            entry.key_at,
            format!("the parameter `{name}` has no `Type`"),
            "write `Type: String`",
        );
        return None;
    };
    let kind = value::literal(kind, "a parameter's Type", findings)?;
    let read_on_aws = kind.strip_prefix(SSM_VALUE).and_then(|rest| rest.strip_suffix('>'));
    if read_on_aws.is_some() && !given.contains_key(name) {
        let key = entry.value.get("Default").and_then(Node::as_text).unwrap_or(name);
        return Some(Parameter::Elsewhere(format!("{{{{resolve:ssm:{key}}}}}")));
    }
    let kind = read_on_aws.unwrap_or(kind);
    let (text, at) = match (given.get(name), entry.value.get("Default")) {
        (Some(text), _) => (text.clone(), entry.key_at),
        (None, Some(default)) => {
            (value::literal(default, "a parameter's Default", findings)?.to_owned(), default.at)
        }
        (None, None) => {
            check_kind(entry, kind, entry.key_at, findings)?;
            findings.warning(
                entry.key_at,
                format!(
                    "the parameter `{name}` has no value, so every value that uses it is unknown"
                ),
                help_without_value(name),
            );
            return Some(Parameter::Elsewhere(name.clone()));
        }
    };
    check(entry, kind, &text, at, findings)
}

/// Checks one value against its declaration and converts it.
fn check(
    entry: &Entry,
    kind: &str,
    text: &str,
    at: Span,
    findings: &Findings<'_>,
) -> Option<Parameter> {
    let name = &entry.key;
    if text.len() > PARAMETER_BYTES_MAX {
        findings.error(
            at,
            format!("the value of `{name}` has {} bytes", text.len()),
            format!("a parameter has at most {PARAMETER_BYTES_MAX} bytes"),
        );
        return None;
    }
    let is_list = is_list(kind);
    let is_number = kind.contains("Number");
    check_kind(entry, kind, at, findings)?;
    let items: Vec<&str> =
        if is_list { text.split(',').map(str::trim).collect() } else { vec![text] };
    for item in &items {
        check_item(entry, item, is_number, at, findings)?;
    }
    Some(if is_list {
        let items = if text.is_empty() { Vec::new() } else { items };
        Parameter::List(items.into_iter().map(str::to_owned).collect())
    } else {
        Parameter::Text(text.to_owned())
    })
}

fn is_list(kind: &str) -> bool {
    kind == "CommaDelimitedList" || kind.starts_with("List<")
}

/// Reports an unknown parameter type.
fn check_kind(entry: &Entry, kind: &str, at: Span, findings: &Findings<'_>) -> Option<()> {
    if is_list(kind) || matches!(kind, "String" | "Number") || kind.starts_with("AWS::") {
        return Some(());
    }
    findings.error(
        entry.value.get("Type").map_or(at, |node| node.at),
        format!("unknown parameter type `{kind}`"),
        "write `String`, `Number`, `CommaDelimitedList` or `List<Number>`",
    );
    None
}

/// Returns advice on how to give a parameter a value.
pub(crate) fn help_without_value(name: &str) -> String {
    format!("give the parameter a value with `--parameter {name}=VALUE`, or write a `Default:`")
}

fn check_item(
    entry: &Entry,
    item: &str,
    is_number: bool,
    at: Span,
    findings: &Findings<'_>,
) -> Option<()> {
    let (name, node) = (&entry.key, &entry.value);
    let refuse = |why: String, otherwise: String| {
        let help = node
            .get("ConstraintDescription")
            .and_then(Node::as_text)
            .map_or(otherwise, str::to_owned);
        findings.error(at, format!("the value `{item}` of the parameter `{name}` {why}"), help);
    };
    if let Some(Kind::List(allowed)) = node.get("AllowedValues").map(|allowed| &allowed.kind) {
        let allowed: Vec<&str> = allowed.iter().filter_map(Node::as_text).collect();
        if !allowed.contains(&item) {
            refuse(
                "is not one of its AllowedValues".to_owned(),
                format!("give {}", listed(allowed)),
            );
            return None;
        }
    }
    if let Some(pattern) = node.get("AllowedPattern") {
        let text = value::literal(pattern, "AllowedPattern", findings)?;
        match Regex::new(&format!("^(?:{text})$")) {
            Ok(regex) if regex.is_match(item) => {}
            Ok(_) => {
                refuse(
                    "does not match its AllowedPattern".to_owned(),
                    format!("give a value that matches `{text}`"),
                );
                return None;
            }
            // CloudFormation's patterns are Java regular expressions. This crate does not support
            // all of their constructs.
            Err(error) => findings.warning(
                pattern.at,
                format!("this pattern cannot be checked: {error}"),
                "use groups, classes and repetitions only",
            ),
        }
    }
    let number: Option<f64> = item.trim().parse().ok();
    if is_number && number.is_none() {
        refuse("is not a number".to_owned(), "give a number".to_owned());
        return None;
    }
    let length = f64::from(u32::try_from(item.chars().count()).unwrap_or(u32::MAX));
    let bounds = [
        ("MinLength", Some(length), false),
        ("MaxLength", Some(length), true),
        ("MinValue", number, false),
        ("MaxValue", number, true),
    ];
    for (attribute, measured, is_upper) in bounds {
        let bound = node.get(attribute).and_then(Node::as_text).and_then(|text| text.parse().ok());
        let (Some(bound), Some(measured)): (Option<f64>, _) = (bound, measured) else { continue };
        if (is_upper && measured > bound) || (!is_upper && measured < bound) {
            refuse(format!("violates {attribute}"), format!("{attribute} is {bound}"));
            return None;
        }
    }
    Some(())
}
