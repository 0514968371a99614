//! Writes of copies as PartiQL statements, so that one request contains many writes, each with its
//! own condition. Source: DynamoDB developer guide, "PartiQL update statements", "Running batch
//! operations".
//!
//! If a write cannot be expressed as a statement, or if its statement fails, other code sends a
//! separate request for it.
//!
//! A string that all copies share is written as a literal in the statement if it needs no escapes.
//! Each of the 25 statements must contain the value in any case. If all statements of a request are
//! equal, the local store parses the statement only once.

use model::json::{write_attribute_value, write_string};
use model::{AttributeValue, Item, json};
use rules::fan_out::{CopyRule, Mark, Update, mark_attribute};

use crate::tables::statements::{STATEMENT_LENGTH_MAX, Statements};

/// The value of a `?` in a statement.
#[derive(Debug)]
enum Parameter {
    /// A value that is the same for each copy, as DynamoDB JSON.
    Written(String),
    /// The value of the attribute with this name in the copy's key.
    OfKey(String),
}

/// A statement that writes copies of an origin. The parameters identify the copy.
#[derive(Debug, Default)]
pub(super) struct CopyStatement {
    text: String,
    /// The text as a JSON string.
    json: String,
    /// The parameters, one for each `?`.
    parameters: Vec<Parameter>,
    /// True if a plain string is written as a literal.
    is_literal: bool,
}

/// Returns whether a string can be written as a literal without escapes: no character ends the
/// literal or is ambiguous to a parser.
fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'\\'))
}

impl CopyStatement {
    fn name(&mut self, name: &str) {
        self.text.push('"');
        self.text.push_str(name);
        self.text.push('"');
    }

    fn value(&mut self, value: &AttributeValue) {
        if let AttributeValue::S(text) = value
            && self.is_literal
            && is_plain(text)
        {
            self.text.push('\'');
            self.text.push_str(text);
            self.text.push('\'');
            return;
        }
        self.text.push('?');
        let mut written = String::new();
        write_attribute_value(&mut written, value);
        self.parameters.push(Parameter::Written(written));
    }

    fn equals(&mut self, name: &str, value: &AttributeValue) {
        self.name(name);
        self.text.push_str(" = ");
        self.value(value);
    }

    /// Adds the copy's key and the condition that the item is a copy of the mark's origin. Returns
    /// `None` if the mark's origin is not a key.
    fn copy_of(&mut self, rule: &CopyRule, key: &Item, mark: &Mark) -> Option<()> {
        self.text.push_str(" WHERE ");
        for name in key.keys() {
            self.name(name);
            self.text.push_str(" = ? AND ");
            self.parameters.push(Parameter::OfKey(name.clone()));
        }
        // The key identifies the item, so a key attribute needs no condition.
        if !key.contains_key(&rule.index_key) {
            let origin = json::attribute_value_from_str(&mark.origin).ok()?;
            self.equals(&rule.index_key, &origin);
            self.text.push_str(" AND ");
        }
        Some(())
    }

    /// Adds the condition that the copy's current mark has an earlier stamp or belongs to another
    /// origin.
    fn is_older(&mut self, rule: &CopyRule, mark: &Mark) {
        let attribute = mark_attribute(&rule.name);
        self.text.push('(');
        self.name(&attribute);
        self.text.push_str(" IS MISSING OR NOT begins_with(");
        self.name(&attribute);
        self.text.push_str(", ");
        self.value(&AttributeValue::S(Mark::prefix(&mark.origin)));
        self.text.push_str(") OR ");
        self.name(&attribute);
        self.text.push_str(" < ");
        self.value(&AttributeValue::S(mark.text()));
        self.text.push(')');
    }

    /// Adds the write of one copy to a request. Returns `None` if the copy's key lacks an attribute
    /// of the statement.
    pub(super) fn push(&self, statements: &mut Statements, key: &Item) -> Option<()> {
        let mut names = self.parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Written(_) => None,
            Parameter::OfKey(name) => Some(name),
        });
        key.keys().eq(&mut names).then(|| {
            statements.push_written(&self.json, |written| {
                for parameter in &self.parameters {
                    match parameter {
                        Parameter::Written(json) => {
                            written.push_written(|body| body.push_str(json));
                        }
                        Parameter::OfKey(name) => {
                            key.get(name).into_iter().for_each(|value| written.push(value));
                        }
                    }
                }
            });
        })
    }
}

/// Returns the statement that writes a copy on the condition
/// [`CopyGuard::of_job`](super::CopyGuard::of_job). `key` is the key of one copy; the keys of all
/// other copies have the same attributes. Returns `None` if PartiQL cannot express the write: a
/// name contains a quotation mark, or the statement would exceed DynamoDB's maximum length.
pub(super) fn write_of_job(rule: &CopyRule, key: &Item, update: &Update) -> Option<CopyStatement> {
    // If literals make the statement too long, it is built again with parameters only.
    [true, false].into_iter().find_map(|is_literal| statement(rule, key, update, is_literal))
}

fn statement(
    rule: &CopyRule,
    key: &Item,
    update: &Update,
    is_literal: bool,
) -> Option<CopyStatement> {
    let mut statement = CopyStatement { is_literal, ..CopyStatement::default() };
    let mut names = vec![rule.target.as_str(), rule.index_key.as_str()];
    names.extend(key.keys().map(String::as_str));
    names.extend(rule.attributes.keys().map(String::as_str));
    if names.iter().any(|name| name.contains('"')) {
        return None;
    }
    match update {
        Update::Set { values, mark } => {
            statement.text.push_str("UPDATE ");
            statement.name(&rule.target);
            statement.text.push_str(" SET ");
            statement.equals(&mark_attribute(&rule.name), &AttributeValue::S(mark.text()));
            for (name, value) in values {
                if let Some(value) = value {
                    statement.text.push_str(" SET ");
                    statement.equals(name, value);
                } else {
                    statement.text.push_str(" REMOVE ");
                    statement.name(name);
                }
            }
            statement.copy_of(rule, key, mark)?;
            statement.is_older(rule, mark);
        }
        Update::Delete { mark } => {
            statement.text.push_str("DELETE FROM ");
            statement.name(&rule.target);
            statement.copy_of(rule, key, mark)?;
            statement.equals(&mark_attribute(&rule.name), &AttributeValue::S(mark.text()));
        }
    }
    if statement.text.len() > STATEMENT_LENGTH_MAX {
        return None;
    }
    write_string(&mut statement.json, &statement.text);
    Some(statement)
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;
    use rules::Stamp;
    use rules::fan_out::parse_rules;

    use super::*;

    fn rule(yaml: &str) -> CopyRule {
        parse_rules(&format!(
            "- name: p\n  from: origins\n  to: copies\n  index: i\n  on-delete: keep\n{yaml}"
        ))
        .unwrap()
        .remove(0)
    }

    #[test]
    fn statements_have_the_guard_of_single_writes() {
        let named = "  key: {of: id}\n  attributes: {x: x, y: y}\n";
        let mark = Mark { origin: r#"{"N":"7"}"#.to_owned(), stamp: Stamp::lowest(), hops: 1 };
        let text = mark.text();
        let set = |value: &str| Update::Set {
            values: [("x".to_owned(), Some(value.into())), ("y".to_owned(), None)].into(),
            mark: mark.clone(),
        };
        let guard = format!(
            r#"("_from_p" IS MISSING OR NOT begins_with("_from_p", '{{"N":"7"}}@') OR "_from_p" < '{text}')"#
        );
        let update = |value: &str| {
            format!(
                r#"UPDATE "copies" SET "_from_p" = '{text}' SET "x" = {value} REMOVE "y" WHERE "k" = ? AND "of" = ? AND {guard}"#
            )
        };
        let key = |json: &str| item_from_str(json).unwrap();
        for (of, write, expected, parameters) in [
            (r#"{"k":{"S":"1"}}"#, set("v ~\""), update("'v ~\"'"), 2),
            // Text that would end a literal, or that parsers may read differently, becomes a
            // parameter.
            (r#"{"k":{"S":"1"}}"#, set("it's"), update("?"), 3),
            (r#"{"k":{"S":"1"}}"#, set("\\"), update("?"), 3),
            (r#"{"k":{"S":"1"}}"#, set("\n"), update("?"), 3),
            (r#"{"k":{"S":"1"}}"#, set("\u{7f}"), update("?"), 3),
            (r#"{"k":{"S":"1"}}"#, set("ö"), update("?"), 3),
            (
                r#"{"k":{"S":"1"},"of":{"N":"7"}}"#,
                Update::Delete { mark: mark.clone() },
                format!(
                    r#"DELETE FROM "copies" WHERE "k" = ? AND "of" = ? AND "_from_p" = '{text}'"#
                ),
                2,
            ),
        ] {
            let statement = write_of_job(&rule(named), &key(of), &write).unwrap();
            assert_eq!(statement.text, expected);
            assert_eq!(statement.parameters.len(), parameters);
        }
        let statement = write_of_job(&rule(named), &key(r#"{"k":{"S":"1"}}"#), &set("ö")).unwrap();
        let mut statements = Statements::default();
        statement.push(&mut statements, &key(r#"{"k":{"S":"a\"2"}}"#)).unwrap();
        let (body, values) = (statements.body(), r#"{"S":"ö"},{"S":"a\"2"},{"N":"7"}"#);
        assert!(body.contains(values), "{body}");
        for other in [r#"{"x":{"S":"1"}}"#, r#"{"a":{"S":"1"},"k":{"S":"1"}}"#, "{}"] {
            assert!(statement.push(&mut statements, &key(other)).is_none(), "{other}");
        }
        let odd = rule("  key: {of: id}\n  attributes: {'x\"': x}\n");
        assert!(write_of_job(&odd, &key(r#"{"k":{"S":"1"}}"#), &set("v")).is_none());
    }

    #[test]
    fn a_statement_is_no_longer_than_the_database_takes() {
        let named = rule("  key: {of: id}\n  attributes: {x: x}\n");
        let key = item_from_str(r#"{"k":{"S":"1"}}"#).unwrap();
        let mark = Mark { origin: r#"{"N":"7"}"#.to_owned(), stamp: Stamp::lowest(), hops: 1 };
        let of = |name: usize, value: usize| {
            let values = [("n".repeat(name), Some("v".repeat(value).into()))].into();
            write_of_job(&named, &key, &Update::Set { values, mark: mark.clone() })
        };
        let around = of(1, 1).unwrap().text.len() - 1;
        let longest = of(STATEMENT_LENGTH_MAX - around, 1).unwrap();
        assert_eq!((longest.text.len(), longest.parameters.len()), (STATEMENT_LENGTH_MAX, 2));
        // Before the statement is too long, values become parameters.
        let longer = of(STATEMENT_LENGTH_MAX - around + 1, 1).unwrap();
        assert!(longer.text.len() < STATEMENT_LENGTH_MAX);
        assert_eq!(longer.parameters.len(), 6);
        assert!(of(1, STATEMENT_LENGTH_MAX).is_some());
        let around = longer.text.len() - (STATEMENT_LENGTH_MAX - around + 1);
        assert!(of(STATEMENT_LENGTH_MAX - around, 1).is_some());
        assert!(of(STATEMENT_LENGTH_MAX - around + 1, 1).is_none());
    }
}
