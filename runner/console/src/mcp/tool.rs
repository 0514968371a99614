//! A tool: its description for a client, and the conversion of a call to a request.
//!
//! This module checks the names and types of arguments. The page checks their values.

use rmcp::model::ToolAnnotations;
use serde_json::{Map, Value, json};

use crate::error::PageError;
use crate::query::Query;

/// A page or an action that a client can call.
#[derive(Debug)]
pub(super) struct Tool {
    /// The name of the tool. For a page, this is the name of its module.
    pub(super) name: &'static str,
    /// The purpose of the tool, for the assistant.
    pub(super) description: &'static str,
    /// The path in the console. `{name}` is a parameter; a call may omit an optional parameter at
    /// the end.
    pub(super) path: &'static str,
    /// Whether the tool changes something.
    pub(super) effect: Effect,
    /// The parameters. Parameters that are not in the path are fields of the query or the form.
    pub(super) parameters: &'static [Parameter],
}

/// The effect of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The tool shows a page.
    Reads,
    /// The tool executes an action.
    Changes(Change),
}

/// The hints for a client that decides whether an assistant may call the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Whether the action may destroy or overwrite data.
    pub(super) is_destructive: bool,
    /// Whether the action is idempotent.
    pub(super) is_idempotent: bool,
    /// Whether the action runs the user's code, which may access other systems.
    pub(super) runs_code: bool,
}

/// A parameter of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    /// The name of the page's field or path segment.
    pub(super) name: &'static str,
    /// The description of the parameter.
    pub(super) description: &'static str,
    /// The type of its values.
    pub(super) kind: Kind,
    /// Whether a call must have the parameter.
    pub(super) is_required: bool,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A string.
    Text,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// A whole number in these bounds.
    Number(u64, u64),
    /// A Boolean; the argument `false` has the same effect as a missing argument.
    Flag,
    /// A JSON object. A string that contains JSON is also accepted, because pages show keys as
    /// strings.
    Object,
}

/// The request to the console that results from a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The segments of the path.
    pub(super) path: Vec<String>,
    /// The query of a page, or the fields of an action's form.
    pub(super) query: Query,
}

impl Parameter {
    /// Returns the parameter as a required parameter.
    pub(super) const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    fn schema(&self) -> Value {
        let description = self.description;
        match self.kind {
            Kind::Text => json!({"type": "string", "description": description}),
            Kind::Choice(texts) => {
                json!({"type": "string", "enum": texts, "description": description})
            }
            Kind::Number(min, max) => {
                json!({"type": "integer", "minimum": min, "maximum": max, "description": description})
            }
            Kind::Flag => json!({"type": "boolean", "description": description}),
            Kind::Object => json!({"type": "object", "description": description}),
        }
    }

    /// Returns an argument as the string value of a query field.
    fn text(&self, argument: &Value) -> Result<String, PageError> {
        match (self.kind, argument) {
            (Kind::Text | Kind::Choice(_) | Kind::Object, Value::String(text)) => Ok(text.clone()),
            (Kind::Number(..), Value::Number(number)) if number.is_u64() => Ok(number.to_string()),
            (Kind::Flag, Value::Bool(is_set)) => {
                Ok(if *is_set { "1".to_owned() } else { String::new() })
            }
            (Kind::Object, Value::Object(_)) if is_exact(argument) => Ok(argument.to_string()),
            (Kind::Object, Value::Object(_)) => Err(PageError::bad_input(
                self.name,
                "a number may have lost digits because it is a JSON number",
                r#"numbers as DynamoDB JSON: {"id":{"N":"1.5"}}"#,
            )),
            (kind, other) => {
                let what = format!("it is {}", type_name(other));
                Err(PageError::bad_input(self.name, what, kind.instead()))
            }
        }
    }
}

impl Kind {
    /// Returns the accepted values, for the error of a value of another type.
    fn instead(self) -> String {
        match self {
            Self::Text => "a string, in quotes".to_owned(),
            Self::Choice(texts) => texts.join(" or "),
            Self::Number(min, max) => format!("a whole number from {min} to {max}"),
            Self::Flag => "true or false".to_owned(),
            Self::Object => r#"a JSON object: {"id":"a"}"#.to_owned(),
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_u64() => "a number",
        Value::Number(_) => "a negative or fractional number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Returns whether all numbers in a value are 64-bit integers. Only such numbers keep all their
/// digits in JSON.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_u64() || number.is_i64(),
        Value::Array(members) => members.iter().all(is_exact),
        Value::Object(members) => members.values().all(is_exact),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// Returns the name of the parameter of a path segment; `None` if the segment is literal.
pub(super) fn placeholder(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

impl Tool {
    /// Returns the segments of the path; a placeholder keeps its braces.
    pub(super) fn segments(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter(|segment| !segment.is_empty())
    }

    /// Returns the JSON Schema of the arguments.
    pub(super) fn schema(&self) -> Map<String, Value> {
        let properties: Map<String, Value> =
            self.parameters.iter().map(|it| (it.name.to_owned(), it.schema())).collect();
        let required = self.parameters.iter().filter(|it| it.is_required).map(|it| it.name);
        let required: Vec<&str> = required.collect();
        Map::from_iter([
            ("type".to_owned(), json!("object")),
            ("properties".to_owned(), Value::Object(properties)),
            ("required".to_owned(), json!(required)),
            ("additionalProperties".to_owned(), json!(false)),
        ])
    }

    /// Returns the description for a client.
    pub(super) fn describe(&self) -> rmcp::model::Tool {
        let hints = ToolAnnotations::new();
        let hints = match self.effect {
            Effect::Reads => hints.read_only(true).open_world(false),
            Effect::Changes(change) => hints
                .read_only(false)
                .destructive(change.is_destructive)
                .idempotent(change.is_idempotent)
                .open_world(change.runs_code),
        };
        rmcp::model::Tool::new(self.name, self.description, self.schema()).with_annotations(hints)
    }

    /// Converts the arguments of a call to a request.
    ///
    /// # Errors
    /// An argument is unknown, is missing, or has another type.
    pub(super) fn request(&self, arguments: &Map<String, Value>) -> Result<Request, PageError> {
        self.check_names(arguments)?;
        let mut fields = Vec::new();
        for parameter in self.parameters {
            let given = arguments.get(parameter.name).filter(|argument| !argument.is_null());
            let text = given.map(|argument| parameter.text(argument)).transpose()?;
            match text.filter(|text| !text.is_empty()) {
                Some(text) => fields.push((parameter.name.to_owned(), text)),
                None if parameter.is_required => {
                    let name = parameter.name;
                    return Err(PageError::bad_input(name, "not given", parameter.description));
                }
                None => {}
            }
        }
        let mut path = Vec::new();
        for segment in self.segments() {
            let Some(name) = placeholder(segment) else {
                path.push(segment.to_owned());
                continue;
            };
            if let Some(place) = fields.iter().position(|(field, _)| field == name) {
                path.push(fields.remove(place).1);
            }
        }
        Ok(Request { path, query: Query::of(fields) })
    }

    fn check_names(&self, arguments: &Map<String, Value>) -> Result<(), PageError> {
        let is_known = |name: &str| self.parameters.iter().any(|it| it.name == name);
        let Some(unknown) = arguments.keys().find(|name| !is_known(name)) else { return Ok(()) };
        let names: Vec<&str> = self.parameters.iter().map(|it| it.name).collect();
        let instead = if names.is_empty() { "no argument".to_owned() } else { names.join(", ") };
        let what = format!("`{}` has no argument `{unknown}`", self.name);
        Err(PageError::bad_input("the arguments", what, instead))
    }
}
