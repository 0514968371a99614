//! Writes of copies as PartiQL statements, so that one request makes many of them, each with the
//! condition of its own. Source: DynamoDB developer guide, "PartiQL update statements", "Running
//! batch operations".
//!
//! What cannot be said so, or was not settled by it, is written by a request of its own elsewhere.

use model::{AttributeValue, Item, json};
use rules::fan_out::{CopyRule, Mark, Update, mark_attribute};

/// A statement: its text, and a parameter for each `?`.
#[derive(Debug, Default)]
pub(super) struct Statement {
    pub(super) text: String,
    pub(super) parameters: Vec<AttributeValue>,
}

impl Statement {
    fn name(&mut self, name: &str) {
        self.text.push('"');
        self.text.push_str(name);
        self.text.push('"');
    }

    fn parameter(&mut self, value: AttributeValue) {
        self.text.push('?');
        self.parameters.push(value);
    }

    fn equals(&mut self, name: &str, value: AttributeValue) {
        self.name(name);
        self.text.push_str(" = ");
        self.parameter(value);
    }

    /// What names the copy, and the condition that it is one of the mark's origin. `None` if the mark
    /// is not of an origin.
    fn copy_of(&mut self, rule: &CopyRule, key: &Item, mark: &Mark) -> Option<()> {
        self.text.push_str(" WHERE ");
        for (name, value) in key.iter() {
            self.equals(name, value.clone());
            self.text.push_str(" AND ");
        }
        // An attribute of the key is as the key says.
        if !key.contains_key(&rule.index_key) {
            let origin = json::attribute_value_from_str(&mark.origin).ok()?;
            self.equals(&rule.index_key, origin);
            self.text.push_str(" AND ");
        }
        Some(())
    }

    /// The condition that a copy's mark is older or of another origin.
    fn is_older(&mut self, rule: &CopyRule, mark: &Mark) {
        let attribute = mark_attribute(&rule.name);
        self.text.push('(');
        self.name(&attribute);
        self.text.push_str(" IS MISSING OR NOT begins_with(");
        self.name(&attribute);
        self.text.push_str(", ");
        self.parameter(AttributeValue::S(Mark::prefix(&mark.origin)));
        self.text.push_str(") OR ");
        self.name(&attribute);
        self.text.push_str(" < ");
        self.parameter(AttributeValue::S(mark.text()));
        self.text.push(')');
    }
}

/// The statement that writes a copy if [`CopyGuard::of_job`](super::CopyGuard::of_job) holds. `None`
/// if PartiQL cannot say it: a name with a quotation mark in it.
pub(super) fn write_of_job(rule: &CopyRule, key: &Item, update: &Update) -> Option<Statement> {
    let mut statement = Statement::default();
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
            statement.equals(&mark_attribute(&rule.name), AttributeValue::S(mark.text()));
            for (name, value) in values {
                if let Some(value) = value {
                    statement.text.push_str(" SET ");
                    statement.equals(name, value.clone());
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
            statement.equals(&mark_attribute(&rule.name), AttributeValue::S(mark.text()));
        }
    }
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
        let values = [("x".to_owned(), Some("v".into())), ("y".to_owned(), None)].into();
        let set = Update::Set { values, mark: mark.clone() };
        let guard = r#"("_from_p" IS MISSING OR NOT begins_with("_from_p", ?) OR "_from_p" < ?)"#;
        for (key, update, expected, parameters) in [
            (
                r#"{"k":{"S":"1"}}"#,
                &set,
                format!(
                    r#"UPDATE "copies" SET "_from_p" = ? SET "x" = ? REMOVE "y" WHERE "k" = ? AND "of" = ? AND {guard}"#
                ),
                6,
            ),
            (
                r#"{"k":{"S":"1"},"of":{"N":"7"}}"#,
                &Update::Delete { mark },
                r#"DELETE FROM "copies" WHERE "k" = ? AND "of" = ? AND "_from_p" = ?"#.to_owned(),
                3,
            ),
        ] {
            let key = item_from_str(key).unwrap();
            let statement = write_of_job(&rule(named), &key, update).unwrap();
            assert_eq!(statement.text, expected);
            assert_eq!(statement.parameters.len(), parameters);
        }
        let odd = rule("  key: {of: id}\n  attributes: {'x\"': x}\n");
        let key = item_from_str(r#"{"k":{"S":"1"}}"#).unwrap();
        assert!(write_of_job(&odd, &key, &set).is_none());
    }
}
