//! One rule of a filter's leaf: a literal value, or an operator.
//!
//! A rule checks one scalar at a time. The pattern handles paths, arrays and absence.

use std::fmt;

use serde_json::Value;
use serde_json::value::RawValue;

use super::syntax::{self, Fault};

/// One element of a leaf array, such as `"INSERT"` or `{"prefix": "us-"}`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Rule {
    /// The scalar equals this literal value.
    Equals(Literal),
    /// `{"exists": …}`: the path must, or must not, lead to a scalar. The pattern evaluates this
    /// rule.
    Exists(bool),
    /// `{"numeric": […]}`: the number is within all bounds. Only JSON numbers match, never a
    /// DynamoDB `N`, which is a string.
    Numeric(Vec<Bound>),
    /// The scalar is a string that matches this comparison.
    Text(TextRule),
    /// `{"anything-but": [values]}`: the scalar equals none of these literals, which are either all
    /// strings or all numbers.
    AnythingBut(Vec<Literal>),
    /// `{"anything-but": {"prefix": […]}}`, or with another string operator: the scalar is a string
    /// that matches none of these comparisons.
    AnythingButText(Vec<TextRule>),
}

/// A literal of a pattern. A number keeps its notation, because two numbers are equal only if their
/// notations are equal: 300 is not 300.0.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
}

/// A comparison with a string. If `ignore_case` is set, both strings are compared in lower case.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TextRule {
    place: Place,
    ignore_case: bool,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Start,
    End,
    Whole,
}

/// A bound of a numeric rule: an operator and a number.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bound {
    operator: Comparison,
    number: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    Equal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Rule {
    /// Reads one element of a leaf array.
    pub(super) fn read(raw: &RawValue) -> Result<Self, Fault> {
        match syntax::kind(raw) {
            syntax::Kind::Object => Self::read_operator(raw),
            syntax::Kind::Array => Err(Fault::new(
                "a list contains another list",
                "one flat list of alternatives, such as [\"a\", \"b\"]",
            )),
            _ => Literal::read(raw).map(Self::Equals),
        }
    }

    fn read_operator(raw: &RawValue) -> Result<Self, Fault> {
        let members = syntax::object(raw)?;
        let mut pairs = members.into_iter();
        let (Some((name, operand)), None) = (pairs.next(), pairs.next()) else {
            return Err(Fault::new(
                "an operator object must have exactly one member",
                "one object for each operator, such as [{\"prefix\": \"a\"}, {\"suffix\": \"b\"}]",
            ));
        };
        match name.as_str() {
            "exists" => match operand.get() {
                "true" => Ok(Self::Exists(true)),
                "false" => Ok(Self::Exists(false)),
                _ => Err(Fault::new("exists needs true or false", "{\"exists\": true}")),
            },
            "numeric" => Bound::read_all(operand).map(Self::Numeric),
            "prefix" | "suffix" | "equals-ignore-case" => {
                TextRule::read(&name, operand).map(Self::Text)
            }
            "anything-but" => Self::read_anything_but(operand),
            "wildcard" | "cidr" => Err(Fault::new(
                format!("Lambda filters do not support the EventBridge operator `{name}`"),
                "prefix or suffix",
            )),
            _ => Err(Fault::new(
                format!("`{name}` is not an operator"),
                "one of prefix, suffix, anything-but, numeric, exists, equals-ignore-case",
            )),
        }
    }

    fn read_anything_but(operand: &RawValue) -> Result<Self, Fault> {
        match syntax::kind(operand) {
            syntax::Kind::Object => {
                let members = syntax::object(operand)?;
                let mut pairs = members.into_iter();
                let (Some((name, texts)), None) = (pairs.next(), pairs.next()) else {
                    return Err(anything_but_fault());
                };
                if !matches!(name.as_str(), "prefix" | "suffix" | "equals-ignore-case") {
                    return Err(anything_but_fault());
                }
                let texts = match syntax::kind(texts) {
                    syntax::Kind::Array => syntax::list(texts)?,
                    _ => vec![texts],
                };
                let rules: Result<Vec<_>, _> =
                    texts.into_iter().map(|text| TextRule::read(&name, text)).collect();
                rules.and_then(non_empty).map(Self::AnythingButText)
            }
            syntax::Kind::Array => Self::anything_but(syntax::list(operand)?),
            _ => Self::anything_but(vec![operand]),
        }
    }

    /// Parses an `anything-but`. EventBridge accepts a list of strings or a list of numbers, but no
    /// list with both.
    fn anything_but(values: Vec<&RawValue>) -> Result<Self, Fault> {
        let literals: Vec<Literal> =
            values.into_iter().map(Literal::read).collect::<Result<_, _>>()?;
        let are_texts = literals.iter().all(|literal| matches!(literal, Literal::Text(_)));
        let are_numbers = literals.iter().all(|literal| matches!(literal, Literal::Number(_)));
        if literals.is_empty() || !(are_texts || are_numbers) {
            return Err(anything_but_fault());
        }
        Ok(Self::AnythingBut(literals))
    }

    /// Returns true if one scalar of the record satisfies the rule. [`Rule::Exists`] ignores the
    /// scalar, because its presence is sufficient.
    pub(super) fn accepts(&self, scalar: &Value) -> bool {
        match self {
            Self::Equals(literal) => literal.equals(scalar),
            Self::Exists(wanted) => *wanted,
            Self::Numeric(bounds) => scalar
                .as_f64()
                .is_some_and(|number| bounds.iter().all(|bound| bound.accepts(number))),
            Self::Text(rule) => rule.accepts(scalar),
            Self::AnythingBut(literals) => !literals.iter().any(|literal| literal.equals(scalar)),
            Self::AnythingButText(rules) => !rules.iter().any(|rule| rule.accepts(scalar)),
        }
    }
}

fn anything_but_fault() -> Fault {
    Fault::new(
        "anything-but takes a text, a number, a list of texts, a list of numbers, or one of the \
         operators prefix, suffix and equals-ignore-case",
        "{\"anything-but\": [\"a\", \"b\"]} or {\"anything-but\": {\"prefix\": [\"a\", \"b\"]}}",
    )
}

fn non_empty<T>(list: Vec<T>) -> Result<Vec<T>, Fault> {
    if list.is_empty() { Err(anything_but_fault()) } else { Ok(list) }
}

impl Literal {
    fn read(raw: &RawValue) -> Result<Self, Fault> {
        match syntax::kind(raw) {
            syntax::Kind::Null => Ok(Self::Null),
            syntax::Kind::Bool => Ok(Self::Bool(raw.get() == "true")),
            syntax::Kind::Number => Ok(Self::Number(raw.get().to_owned())),
            syntax::Kind::Text => syntax::text(raw).map(Self::Text),
            syntax::Kind::Array | syntax::Kind::Object => Err(Fault::new(
                "a value must be a string, a number, true, false or null",
                "a plain value, such as \"a\"",
            )),
        }
    }

    fn equals(&self, scalar: &Value) -> bool {
        match (self, scalar) {
            (Self::Null, Value::Null) => true,
            (Self::Bool(mine), Value::Bool(theirs)) => mine == theirs,
            (Self::Text(mine), Value::String(theirs)) => mine == theirs,
            (Self::Number(mine), Value::Number(theirs)) => *mine == theirs.to_string(),
            _ => false,
        }
    }
}

impl TextRule {
    fn read(name: &str, operand: &RawValue) -> Result<Self, Fault> {
        let place = match name {
            "prefix" => Place::Start,
            "suffix" => Place::End,
            _ => Place::Whole,
        };
        let fault =
            || Fault::new(format!("{name} needs a string"), format!("{{\"{name}\": \"text\"}}"));
        if place != Place::Whole && syntax::kind(operand) == syntax::Kind::Object {
            let members = syntax::object(operand)?;
            let mut pairs = members.into_iter();
            let (Some((inner, text)), None) = (pairs.next(), pairs.next()) else {
                return Err(fault());
            };
            if inner != "equals-ignore-case" || syntax::kind(text) != syntax::Kind::Text {
                return Err(fault());
            }
            let text = syntax::text(text)?.to_lowercase();
            return Ok(Self { place, ignore_case: true, text });
        }
        if syntax::kind(operand) != syntax::Kind::Text {
            return Err(fault());
        }
        let text = syntax::text(operand)?;
        Ok(match place {
            Place::Whole => Self { place, ignore_case: true, text: text.to_lowercase() },
            Place::Start | Place::End => Self { place, ignore_case: false, text },
        })
    }

    fn accepts(&self, scalar: &Value) -> bool {
        let Value::String(found) = scalar else { return false };
        if self.ignore_case { self.holds_for(&found.to_lowercase()) } else { self.holds_for(found) }
    }

    fn holds_for(&self, found: &str) -> bool {
        match self.place {
            Place::Start => found.starts_with(&self.text),
            Place::End => found.ends_with(&self.text),
            Place::Whole => found == self.text,
        }
    }
}

impl Bound {
    /// Reads `[operator, number]` or `[lower operator, number, upper operator, number]`.
    fn read_all(operand: &RawValue) -> Result<Vec<Self>, Fault> {
        if syntax::kind(operand) != syntax::Kind::Array {
            return Err(Self::fault("numeric needs a list"));
        }
        let parts = syntax::list(operand)?;
        let mut bounds = Vec::new();
        for pair in parts.chunks(2) {
            let [operator, number] = pair else {
                return Err(Self::fault("numeric lacks a number after its last operator"));
            };
            bounds.push(Self::read(operator, number)?);
        }
        match bounds.as_slice() {
            [_] => Ok(bounds),
            [lower, upper] => {
                let lower_first =
                    matches!(lower.operator, Comparison::Greater | Comparison::AtLeast);
                let upper_last = matches!(upper.operator, Comparison::Less | Comparison::AtMost);
                if !(lower_first && upper_last) {
                    return Err(Self::fault("a numeric range needs > or >= first, then < or <="));
                }
                if lower.number >= upper.number {
                    return Err(Self::fault(
                        "the numeric range is empty: its lower bound is not below its upper bound",
                    ));
                }
                Ok(bounds)
            }
            _ => Err(Self::fault("numeric takes one bound, or a lower and an upper bound")),
        }
    }

    fn fault(problem: impl Into<String>) -> Fault {
        Fault::new(problem, "[\"=\", 5], [\">\", 0] or [\">\", 0, \"<=\", 5]")
    }

    fn read(operator: &RawValue, number: &RawValue) -> Result<Self, Fault> {
        let operator = match operator.get() {
            "\"=\"" => Comparison::Equal,
            "\"<\"" => Comparison::Less,
            "\"<=\"" => Comparison::AtMost,
            "\">\"" => Comparison::Greater,
            "\">=\"" => Comparison::AtLeast,
            other => return Err(Self::fault(format!("{other} is not a numeric operator"))),
        };
        if syntax::kind(number) != syntax::Kind::Number {
            return Err(Self::fault(format!("{} is not a number", number.get())));
        }
        let parsed = number.get().parse();
        let number: f64 =
            parsed.map_err(|_| Self::fault(format!("{} is not a number", number.get())))?;
        // EventBridge, "Numeric matching": numbers are limited to ±5.0e9.
        if number.abs() > 5.0e9 {
            return Err(Self::fault(format!("{number} is outside -5.0e9 to 5.0e9")));
        }
        Ok(Self { operator, number })
    }

    fn accepts(&self, found: f64) -> bool {
        match self.operator {
            Comparison::Equal => found == self.number,
            Comparison::Less => found < self.number,
            Comparison::AtMost => found <= self.number,
            Comparison::Greater => found > self.number,
            Comparison::AtLeast => found >= self.number,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(literal) => write!(formatter, "{literal}"),
            Self::Exists(true) => formatter.write_str("any value"),
            Self::Exists(false) => formatter.write_str("no value"),
            Self::Numeric(bounds) => write_list(formatter, bounds, " and "),
            Self::Text(rule) => write!(formatter, "{rule}"),
            Self::AnythingBut(literals) => {
                formatter.write_str("anything but ")?;
                write_list(formatter, literals, ", ")
            }
            Self::AnythingButText(rules) => {
                formatter.write_str("anything but ")?;
                write_list(formatter, rules, ", ")
            }
        }
    }
}

fn write_list(
    formatter: &mut fmt::Formatter<'_>,
    list: &[impl fmt::Display],
    separator: &str,
) -> fmt::Result {
    for (index, element) in list.iter().enumerate() {
        if index > 0 {
            formatter.write_str(separator)?;
        }
        write!(formatter, "{element}")?;
    }
    Ok(())
}

impl fmt::Display for Literal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("null"),
            Self::Bool(value) => write!(formatter, "{value}"),
            Self::Number(text) => formatter.write_str(text),
            Self::Text(text) => write!(formatter, "{text:?}"),
        }
    }
}

impl fmt::Display for TextRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Start => "a string that starts with ",
            Place::End => "a string that ends with ",
            Place::Whole => "",
        };
        let case = if self.ignore_case { " (ignoring case)" } else { "" };
        write!(formatter, "{place}{:?}{case}", self.text)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = match self.operator {
            Comparison::Equal => "=",
            Comparison::Less => "<",
            Comparison::AtMost => "<=",
            Comparison::Greater => ">",
            Comparison::AtLeast => ">=",
        };
        write!(formatter, "a number {operator} {}", self.number)
    }
}
