//! A cache for a statement's text, for a request that repeats the text with different parameters,
//! for example to write many items. The text is tokenized once. An update or delete is parsed at
//! most twice, as long as only values of equality conditions differ.

use std::mem;
use std::sync::Arc;

use model::AttributeValue;

use super::parser;
use super::token::{self, PositionedToken, Token};
use super::{PartiqlError, Statement, Where};
use crate::value_table::ValueIndex;

/// The first keywords of statements that write an item under a condition.
const CONDITIONAL_WRITES: [&str; 3] = ["UPDATE", "DELETE", "FROM"];

/// The tokenized text of a statement, shared by all statements of a request that differ only in their
/// parameters.
#[derive(Clone, Debug)]
pub struct StatementText<'t> {
    text: &'t str,
    tokens: Vec<PositionedToken>,
    cache: CachedParse,
}

/// The cached result of parsing.
#[derive(Clone, Debug)]
enum CachedParse {
    /// No statement is cached yet, because most texts occur only once.
    Nothing,
    /// The text was already parsed once, so the request repeats it. The next parsed statement is
    /// cached.
    CacheNext,
    /// A cached statement.
    Cached(Box<CachedStatement>),
    /// No statement is ever cached: the statements differ in more than values of equality
    /// conditions, or are not updates or deletes.
    Never,
}

/// A parsed statement that can be reused with other parameters.
#[derive(Clone, Debug)]
struct CachedStatement {
    statement: Statement,
    parameters: Vec<AttributeValue>,
    /// The parameters that may have other values, each with the index of its value in the
    /// conditions. Each occurs once in the conditions.
    equal: Vec<(usize, ValueIndex)>,
}

impl CachedStatement {
    /// Returns whether the cached statement can be reused with these parameters: they differ only
    /// in values that did not influence parsing.
    fn is_of(&self, parameters: &[AttributeValue]) -> bool {
        let is_free = |at: usize| self.equal.iter().any(|(parameter, _)| *parameter == at);
        let mut both = self.parameters.iter().zip(parameters).enumerate();
        self.parameters.len() == parameters.len()
            && both.all(|(at, (known, value))| is_free(at) || known == value)
    }

    /// Returns the cached statement with these parameters, for which [`CachedStatement::is_of`]
    /// must have returned true.
    fn with(&self, mut parameters: Vec<AttributeValue>) -> Statement {
        let mut statement = self.statement.clone();
        if let Some(condition) = condition_of(&mut statement) {
            for (at, index) in &self.equal {
                if let Some(value) = parameters.get_mut(*at) {
                    let value = mem::replace(value, AttributeValue::Null);
                    index.set(&mut condition.values, Arc::new(value));
                }
            }
        }
        statement
    }
}

/// Returns the conditions of an update or a delete.
fn condition_of(statement: &mut Statement) -> Option<&mut Where> {
    match statement {
        Statement::Update { condition, .. } | Statement::Delete { condition, .. } => {
            Some(condition)
        }
        Statement::Select(_) | Statement::Exists(_) | Statement::Insert { .. } => None,
    }
}

impl<'t> StatementText<'t> {
    /// Tokenizes the text of a statement.
    ///
    /// # Errors
    /// When the text contains an invalid token. The error has DynamoDB's message.
    pub fn new(text: &'t str) -> Result<Self, PartiqlError> {
        let tokens = token::tokenize(text)?;
        let is_write = |word: &str| CONDITIONAL_WRITES.iter().any(|w| w.eq_ignore_ascii_case(word));
        let cache = match tokens.first().map(|placed| &placed.token) {
            Some(Token::Word(word)) if is_write(word) => CachedParse::Nothing,
            _ => CachedParse::Never,
        };
        Ok(Self { text, tokens, cache })
    }

    /// Returns whether the statement begins with `SELECT`. Such a statement reads or is rejected;
    /// it never writes.
    #[must_use]
    pub fn is_select(&self) -> bool {
        let first = self.tokens.first().map(|placed| &placed.token);
        matches!(first, Some(Token::Word(word)) if word.eq_ignore_ascii_case("SELECT"))
    }

    /// Returns whether this is the tokenized form of `text`.
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        self.text == text
    }

    /// Returns the parsed statement. Replaces each `?` with the next parameter.
    ///
    /// # Errors
    /// The first error that DynamoDB would report, with its message.
    pub fn with(&mut self, parameters: Vec<AttributeValue>) -> Result<Statement, PartiqlError> {
        let kept = match &self.cache {
            CachedParse::Cached(known) if known.is_of(&parameters) => {
                return Ok(known.with(parameters));
            }
            CachedParse::CacheNext => Some(parameters.clone()),
            CachedParse::Nothing | CachedParse::Cached(_) | CachedParse::Never => None,
        };
        self.cache = match self.cache {
            CachedParse::Nothing => CachedParse::CacheNext,
            _ => CachedParse::Never,
        };
        let (statement, equal) = parser::parse(self.text, &self.tokens, parameters)?;
        if let Some(parameters) = kept {
            let statement = statement.clone();
            self.cache =
                CachedParse::Cached(Box::new(CachedStatement { statement, parameters, equal }));
        }
        Ok(statement)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_statement;
    use super::*;
    use crate::update::Update;

    /// Goal: a `SELECT` is recognised with any comments, white space and case, and only by its
    /// first keyword.
    #[test]
    fn a_select_is_told_by_its_first_token() {
        for (text, expected) in [
            ("SELECT * FROM t", true),
            ("  \n\tselect * from t", true),
            ("-- DELETE FROM t\nSelect * FROM t", true),
            ("/* UPDATE t */ -- INSERT\r\n /**/sElEcT * FROM t", true),
            ("SELECT/**/* FROM t", true),
            ("-- SELECT * FROM t\nDELETE FROM t WHERE k = 1", false),
            ("/* SELECT */INSERT INTO t VALUE {'k': 1}", false),
            ("SELECTED SET x = 1", false),
            ("\"SELECT\" * FROM t", false),
            ("'SELECT' * FROM t", false),
            ("UPDATE SELECT SET x = 1 WHERE k = 1", false),
            ("FROM t WHERE k = 1 SET x = 1", false),
            ("EXISTS(SELECT * FROM t WHERE k = 1)", false),
            ("-- SELECT * FROM t", false),
            ("", false),
        ] {
            assert_eq!(StatementText::new(text).unwrap().is_select(), expected, "{text}");
            let parsed = parse_statement(text, &[]);
            let is_other = parsed.is_ok_and(|parsed| !matches!(parsed, Statement::Select(_)));
            assert!(!(expected && is_other), "{text}");
        }
    }

    /// Goal: the result does not depend on the parameters with which a text was parsed before.
    #[test]
    fn earlier_parameters_do_not_affect_the_result() {
        let values = [
            AttributeValue::from("text"),
            AttributeValue::from("S"),
            AttributeValue::N(model::Number::from(7_u64)),
            AttributeValue::Bool(true),
            AttributeValue::Null,
            AttributeValue::Ss(["a".to_owned()].into()),
        ];
        for (text, parameters) in [
            ("UPDATE t SET x = ? WHERE k = ?", 2),
            ("UPDATE t SET x = set_add(x, ?) WHERE k = ?", 2),
            ("UPDATE t SET x = x + ? WHERE k = ?", 2),
            ("UPDATE t SET x = y WHERE k = ? AND ? = s AND begins_with(x, ?)", 3),
            ("UPDATE t REMOVE x WHERE k = ? AND (k = ?) = ?", 3),
            ("UPDATE t REMOVE x WHERE k = ? AND (x IS MISSING OR NOT x = ? OR x < ?)", 3),
            ("UPDATE t REMOVE x WHERE k = ? AND (s = ?) IN [?]", 3),
            ("FROM t WHERE k = ? AND x <> ? SET x = ?", 3),
            ("DELETE FROM t WHERE k = ? AND s IN [?, ?]", 3),
            ("DELETE FROM t WHERE k = ? AND s BETWEEN ? AND ?", 3),
            ("DELETE FROM t WHERE k = ? AND attribute_type(s, ?) AND contains(x, ?)", 3),
            ("DELETE FROM t WHERE k = ? AND size(s) = ? AND x = -1 AND y = ?", 3),
            ("SELECT * FROM t WHERE k = ? AND s = ?", 2),
            ("INSERT INTO t VALUE {'k': ?, 'x': ?}", 2),
            ("EXISTS(SELECT * FROM t WHERE k = ? AND x = ?)", 2),
        ] {
            let place = |given: &[AttributeValue], at: usize, value: &AttributeValue| {
                let mut other = given.to_vec();
                other[at] = value.clone();
                other
            };
            let mut shared = 0;
            let count = values.len().pow(parameters);
            for number in 0..count {
                let value = |at: u32| values[number / values.len().pow(at) % values.len()].clone();
                let given: Vec<_> = (0..parameters).map(value).collect();
                // Parameters with another value in one position, with other values in all
                // positions, and with one value missing.
                let mut others: Vec<Vec<AttributeValue>> = (0..given.len())
                    .flat_map(|at| values.iter().map(move |value| (at, value)))
                    .map(|(at, value)| place(&given, at, value))
                    .collect();
                others.push(given.iter().rev().cloned().collect());
                others.push(given[1..].to_vec());
                for other in others {
                    let mut said = StatementText::new(text).unwrap();
                    let before = said.with(given.clone());
                    assert_eq!(said.with(given.clone()), before, "{text} {given:?}");
                    let is_known =
                        matches!(&said.cache, CachedParse::Cached(known) if known.is_of(&other));
                    shared += usize::from(is_known && other != given);
                    let (again, alone) = (said.with(other.clone()), parse_statement(text, &other));
                    assert_eq!(again, alone, "{text} {given:?} {other:?}");
                }
            }
            let is_write = text.starts_with(['U', 'F', 'D']);
            assert_eq!(shared > 0, is_write, "{text}: {shared} of {count}");
        }
    }

    /// Goal: a text is not cached if values outside of equality conditions differ, because the
    /// cached statement could not be reused.
    #[test]
    fn a_text_with_other_differences_is_not_cached() {
        let mut text = StatementText::new("UPDATE t SET x = ? WHERE k = ?").unwrap();
        for (x, expected) in [("1", false), ("1", true), ("1", true), ("2", false), ("2", false)] {
            text.with(vec![x.into(), "key".into()]).unwrap();
            assert_eq!(matches!(text.cache, CachedParse::Cached(_)), expected, "{x}");
        }
    }

    #[test]
    fn statements_of_one_text_share_equal_parts() {
        let mut text = StatementText::new("UPDATE t SET x = ? WHERE k = ? AND x < ?").unwrap();
        let mut said = |key: &str| {
            let given = vec!["value".into(), key.into(), "bound".into()];
            let Statement::Update { update, condition, .. } = text.with(given).unwrap() else {
                panic!("it is an update");
            };
            let keys: Vec<_> = condition.equal_to("k").cloned().collect();
            assert_eq!(keys, [AttributeValue::from(key)]);
            (update, condition)
        };
        let (first, second, third) = (said("1"), said("2"), said("3"));
        let is_shared = |one: &Update, other: &Update| std::ptr::eq(one.actions(), other.actions());
        assert!(!is_shared(&first.0, &second.0), "a statement that occurs once is not cached");
        assert!(is_shared(&second.0, &third.0));
        assert!(Arc::ptr_eq(&second.1.all, &third.1.all));
    }
}
