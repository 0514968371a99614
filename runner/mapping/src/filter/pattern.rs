//! One filter pattern: its compiled form, and its result for a record.
//!
//! `FilterCriteria` combines patterns; `Rule` checks one value.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::ItemValues;
use super::rule::Rule;
use super::syntax::{self, Fault};

/// The maximum nesting of a pattern. DynamoDB's maximum of 32 levels in a document is 64 levels in
/// JSON, because each level has a name and a type. The remaining levels are for the record that
/// contains the document.
const DEPTH_MAX: usize = 100;

/// The members that Lambda adds to a record after filtering.
pub(super) const ADDED_AFTER_FILTERING: [&str; 3] = ["eventSource", "eventSourceARN", "awsRegion"];

/// A compiled pattern.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pattern {
    pub(super) root: Fields,
    pub(super) leaves: Vec<Leaf>,
}

/// An object of the pattern: every field and every `$or` must match.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Fields {
    pub(super) named: Vec<(String, Part)>,
    pub(super) choices: Vec<Vec<Fields>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    Fields(Fields),
    /// A leaf, by its index in `Pattern::leaves`.
    Leaf(usize),
}

/// A leaf of the pattern, which is an array of rules. At least one rule must accept a scalar at the
/// leaf's path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Leaf {
    pub(super) path: Vec<String>,
    pub(super) rules: Vec<Rule>,
}

impl Leaf {
    /// Returns true if Lambda adds the value at this path only after filtering.
    fn is_added_later(&self) -> bool {
        self.path.first().is_some_and(|name| ADDED_AFTER_FILTERING.contains(&name.as_str()))
    }

    /// Returns true if the path leads into the item's key or into one of its images.
    pub(super) fn is_of_an_item(&self) -> bool {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        matches!(path[..], ["dynamodb", "Keys" | "NewImage" | "OldImage", _, ..])
    }
}

/// A fault in a pattern, with the path to it. The path begins with the outermost name.
pub(super) struct MisplacedRule {
    pub(super) path: Vec<String>,
    pub(super) fault: Fault,
}

impl Pattern {
    /// Compiles a pattern that is known to be valid JSON.
    pub(super) fn compile(raw: &RawValue) -> Result<Self, MisplacedRule> {
        let mut compiler = Compiler { path: Vec::new(), leaves: Vec::new() };
        match compiler.fields(raw) {
            Ok(root) => Ok(Self { root, leaves: compiler.leaves }),
            Err(fault) => Err(MisplacedRule { path: compiler.path, fault }),
        }
    }

    /// Returns the index of the first leaf that the record does not match; `None` if the pattern
    /// matches.
    pub(super) fn unmet(&self, record: &Value) -> Option<usize> {
        self.unmet_in(&self.root, record.as_object(), record, true)
    }

    fn unmet_in(
        &self,
        fields: &Fields,
        object: Option<&Map<String, Value>>,
        record: &Value,
        top: bool,
    ) -> Option<usize> {
        let unmet_field = fields.named.iter().find_map(|(name, part)| {
            let hidden = top && ADDED_AFTER_FILTERING.contains(&name.as_str());
            let value = object.filter(|_| !hidden).and_then(|object| object.get(name));
            match part {
                Part::Leaf(index) => (!self.leaf_accepts(*index, value, record)).then_some(*index),
                Part::Fields(inner) => self.unmet_below(inner, value, record),
            }
        });
        unmet_field.or_else(|| {
            fields.choices.iter().find_map(|choice| {
                let mut first_unmet = None;
                for alternative in choice {
                    let unmet = self.unmet_in(alternative, object, record, top)?;
                    first_unmet = first_unmet.or(Some(unmet));
                }
                first_unmet
            })
        })
    }

    /// Returns the index of the first leaf of `fields` that a value does not match. In an array, a
    /// single object must match all fields. A value without objects matches only `exists: false`.
    fn unmet_below(&self, fields: &Fields, value: Option<&Value>, record: &Value) -> Option<usize> {
        let mut objects = Vec::new();
        if let Some(value) = value {
            collect_objects(value, &mut objects);
        }
        if objects.is_empty() {
            return self.unmet_in(fields, None, record, false);
        }
        let mut first_unmet = None;
        for object in objects {
            let unmet = self.unmet_in(fields, Some(object), record, false)?;
            first_unmet = first_unmet.or(Some(unmet));
        }
        first_unmet
    }

    fn leaf_accepts(&self, index: usize, value: Option<&Value>, record: &Value) -> bool {
        let Some(leaf) = self.leaves.get(index) else { return false };
        leaf.rules.iter().any(|rule| match rule {
            // Absence applies to the whole record: an attribute counts as present if any element of
            // the array has it.
            Rule::Exists(false) => {
                leaf.is_added_later() || !any_scalar_at(record, &leaf.path, &Rule::Exists(true))
            }
            other => value.is_some_and(|value| any_scalar(value, &|scalar| other.accepts(scalar))),
        })
    }

    /// Describes what a leaf requires: its path and its rules.
    pub(super) fn demand(&self, index: usize) -> String {
        let Some(leaf) = self.leaves.get(index) else { return String::new() };
        let rules: Vec<_> = leaf.rules.iter().map(ToString::to_string).collect();
        format!("`{}` requires {}", leaf.path.join("."), rules.join(" or "))
    }

    /// Describes the values that the record has at a leaf's path.
    pub(super) fn finding(&self, index: usize, record: &Value, values: ItemValues) -> String {
        let Some(leaf) = self.leaves.get(index) else { return String::new() };
        if leaf.is_added_later() {
            return "nothing, because Lambda adds this field only after filtering".to_owned();
        }
        let describe = match values {
            ItemValues::Typed if leaf.is_of_an_item() => type_of,
            ItemValues::Typed | ItemValues::Quoted => quote,
        };
        let mut found = Vec::new();
        collect_at(record, &leaf.path, describe, &mut found);
        if found.is_empty() {
            return "nothing".to_owned();
        }
        let mut finding = found.join(", ");
        if leaf.rules.iter().any(|rule| any_scalar_at(record, &leaf.path, rule)) {
            finding.push_str(", but no single list element matches all fields of the pattern");
        }
        finding
    }
}

struct Compiler {
    path: Vec<String>,
    leaves: Vec<Leaf>,
}

impl Compiler {
    fn fields(&mut self, raw: &RawValue) -> Result<Fields, Fault> {
        if self.path.len() > DEPTH_MAX {
            let problem = format!("the pattern nests deeper than {DEPTH_MAX} levels");
            return Err(Fault::new(problem, "a pattern that is no deeper than a DynamoDB record"));
        }
        if syntax::kind(raw) != syntax::Kind::Object {
            return Err(Fault::new(
                format!("{} is not an object", raw.get()),
                "an object that names fields, such as {\"eventName\": [\"INSERT\"]}",
            ));
        }
        let members = syntax::object(raw)?;
        if members.is_empty() {
            return Err(Fault::new(
                "the object is empty",
                "a field with a list of values, or remove the filter to receive every record",
            ));
        }
        let mut fields = Fields::default();
        for (name, value) in members {
            self.path.push(name.clone());
            if name == "$or" {
                fields.choices.push(self.choice(value)?);
            } else {
                let part = self.part(value)?;
                fields.named.push((name, part));
            }
            self.path.pop();
        }
        Ok(fields)
    }

    fn choice(&mut self, raw: &RawValue) -> Result<Vec<Fields>, Fault> {
        let remedy = "{\"$or\": [{\"a\": [1]}, {\"b\": [2]}]}";
        if syntax::kind(raw) != syntax::Kind::Array {
            return Err(Fault::new("$or needs a list of objects", remedy));
        }
        let alternatives = syntax::list(raw)?;
        if alternatives.len() < 2 {
            return Err(Fault::new("$or needs at least two objects", remedy));
        }
        // The alternatives of `$or` contain fields of the surrounding object, so `$or` itself is
        // not part of their paths.
        let or = self.path.pop();
        let choice: Result<Vec<_>, _> =
            alternatives.into_iter().map(|alternative| self.fields(alternative)).collect();
        if choice.is_ok() {
            self.path.extend(or);
        }
        choice
    }

    fn part(&mut self, raw: &RawValue) -> Result<Part, Fault> {
        match syntax::kind(raw) {
            syntax::Kind::Object => self.fields(raw).map(Part::Fields),
            syntax::Kind::Array => {
                let elements = syntax::list(raw)?;
                if elements.is_empty() {
                    return Err(Fault::new(
                        "the list is empty",
                        "at least one value: [\"INSERT\"]",
                    ));
                }
                let rules: Result<Vec<_>, _> = elements.into_iter().map(Rule::read).collect();
                self.leaves.push(Leaf { path: self.path.clone(), rules: rules? });
                Ok(Part::Leaf(self.leaves.len() - 1))
            }
            _ => Err(Fault::new(
                format!("the value {} is not in a list", raw.get()),
                format!("[{}]", raw.get()),
            )),
        }
    }
}

fn collect_objects<'a>(value: &'a Value, objects: &mut Vec<&'a Map<String, Value>>) {
    match value {
        Value::Object(object) => objects.push(object),
        Value::Array(elements) => {
            elements.iter().for_each(|element| collect_objects(element, objects));
        }
        _ => {}
    }
}

fn any_scalar(value: &Value, accepts: &dyn Fn(&Value) -> bool) -> bool {
    match value {
        Value::Array(elements) => elements.iter().any(|element| any_scalar(element, accepts)),
        Value::Object(_) => false,
        scalar => accepts(scalar),
    }
}

/// Returns true if the path leads to a scalar that the rule accepts. In an array, a scalar in any
/// element is sufficient.
fn any_scalar_at(value: &Value, path: &[String], rule: &Rule) -> bool {
    let Some((name, rest)) = path.split_first() else {
        return any_scalar(value, &|scalar| rule.accepts(scalar));
    };
    match value {
        Value::Object(object) => {
            object.get(name).is_some_and(|inner| any_scalar_at(inner, rest, rule))
        }
        Value::Array(elements) => elements.iter().any(|element| any_scalar_at(element, path, rule)),
        _ => false,
    }
}

/// The maximum number of characters of each value that an explanation quotes.
const QUOTE_CHARACTERS_MAX: usize = 80;
/// The maximum number of values that an explanation quotes.
const QUOTES_MAX: usize = 5;

/// Returns a value as JSON, cut off after `QUOTE_CHARACTERS_MAX` characters.
fn quote(value: &Value) -> String {
    value.to_string().chars().take(QUOTE_CHARACTERS_MAX).collect()
}

/// Returns the name of a value's type.
fn type_of(value: &Value) -> String {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) | Value::Object(_) => "a list or an object",
    };
    name.to_owned()
}

fn collect_at(
    value: &Value,
    path: &[String],
    describe: fn(&Value) -> String,
    found: &mut Vec<String>,
) {
    if found.len() >= QUOTES_MAX {
        return;
    }
    match (path.split_first(), value) {
        (Some((name, rest)), Value::Object(object)) => {
            if let Some(inner) = object.get(name) {
                collect_at(inner, rest, describe, found);
            }
        }
        (_, Value::Array(elements)) => {
            elements.iter().for_each(|element| collect_at(element, path, describe, found));
        }
        (None, Value::Object(_)) => {
            found.push("an object, but rules match only scalar values".to_owned());
        }
        (None, scalar) => found.push(describe(scalar)),
        (Some(_), _) => {}
    }
}
