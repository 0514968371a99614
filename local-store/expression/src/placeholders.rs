//! `ExpressionAttributeNames` and `ExpressionAttributeValues`: the substitutions for `#name` and
//! `:value`, and a record of the placeholders that the expressions of a request have used.
//!
//! Attribute values are already decoded. The decoder reports errors in the values.

use std::collections::BTreeMap;

use model::AttributeValue;
use model::limits::{ATTRIBUTE_NAME_BYTES_MAX, SUBSTITUTIONS_BYTES_MAX};

use crate::error::ExpressionError;
use crate::token::is_word_byte;

/// The maximum length of a placeholder in bytes, including its `#` or `:`, inclusive. Source: AWS,
/// "Quotas: expression parameters".
const PLACEHOLDER_BYTES_MAX: usize = 255;

/// The substitutions of one request.
#[derive(Clone, Debug, Default)]
pub struct Placeholders {
    names: BTreeMap<String, Substitution<String>>,
    values: BTreeMap<String, Substitution<AttributeValue>>,
    any_expression: bool,
}

#[derive(Clone, Debug)]
struct Substitution<T> {
    target: T,
    used: bool,
}

impl Placeholders {
    /// Creates the substitutions from the two maps, and checks the maps, names first. `None` means
    /// an absent parameter.
    ///
    /// # Errors
    /// An empty map, a key that is not a placeholder, an empty or too long attribute name, or more than
    /// 2 MB in one map.
    pub fn new(
        names: Option<BTreeMap<String, String>>,
        values: Option<BTreeMap<String, AttributeValue>>,
    ) -> Result<Self, ExpressionError> {
        if let Some(names) = &names {
            check_keys("ExpressionAttributeNames", b'#', names.keys())?;
            for (key, name) in names {
                check_name(key, name)?;
            }
            let bytes = names.iter().map(|(key, name)| key.len() + name.len()).sum();
            check_total("ExpressionAttributeNames", bytes)?;
        }
        if let Some(values) = &values {
            check_keys("ExpressionAttributeValues", b':', values.keys())?;
            let bytes = values.iter().map(|(key, value)| key.len() + value.size()).sum();
            check_total("ExpressionAttributeValues", bytes)?;
        }
        Ok(Self {
            names: unused(names.unwrap_or_default()),
            values: unused(values.unwrap_or_default()),
            any_expression: false,
        })
    }

    /// Checks that all placeholders were used, after all expressions of the request were parsed.
    ///
    /// # Errors
    /// Placeholders that no expression used, names first, in the order of the placeholders; or
    /// placeholders in a request without any expression.
    pub fn check_all_used(&self) -> Result<(), ExpressionError> {
        let unused_names = unused_keys(&self.names);
        let unused_values = unused_keys(&self.values);
        for (parameter, unused) in [
            ("ExpressionAttributeNames", unused_names),
            ("ExpressionAttributeValues", unused_values),
        ] {
            if unused.is_empty() {
                continue;
            }
            return Err(ExpressionError::new(if self.any_expression {
                let keys = unused.join(", ");
                format!("Value provided in {parameter} unused in expressions: keys: {{{keys}}}")
            } else {
                format!("{parameter} can only be specified when using expressions")
            }));
        }
        Ok(())
    }

    /// Records that the request has an expression.
    pub(crate) fn note_expression(&mut self) {
        self.any_expression = true;
    }

    /// Returns the attribute name that `#name` stands for, and records the placeholder as used.
    pub(crate) fn name(&mut self, placeholder: &str) -> Option<&str> {
        let name = self.names.get_mut(placeholder)?;
        name.used = true;
        Some(&name.target)
    }

    /// Returns the value that `:value` stands for, and records the placeholder as used.
    pub(crate) fn value(&mut self, placeholder: &str) -> Option<&AttributeValue> {
        let value = self.values.get_mut(placeholder)?;
        value.used = true;
        Some(&value.target)
    }
}

fn unused<T>(targets: BTreeMap<String, T>) -> BTreeMap<String, Substitution<T>> {
    targets
        .into_iter()
        .map(|(placeholder, target)| (placeholder, Substitution { target, used: false }))
        .collect()
}

fn unused_keys<T>(substitutions: &BTreeMap<String, Substitution<T>>) -> Vec<&str> {
    let unused = substitutions.iter().filter(|(_, substitution)| !substitution.used);
    unused.map(|(placeholder, _)| placeholder.as_str()).collect()
}

fn check_keys<'a>(
    parameter: &str,
    sigil: u8,
    keys: impl Iterator<Item = &'a String>,
) -> Result<(), ExpressionError> {
    let mut keys = keys.peekable();
    if keys.peek().is_none() {
        return Err(ExpressionError::new(format!("{parameter} must not be empty")));
    }
    let invalid = |problem: &str| format!("{parameter} contains invalid key: {problem}");
    for key in keys {
        if key.len() > PLACEHOLDER_BYTES_MAX {
            let text = invalid("The expression attribute map contains a key that is too long;");
            let size = format!(" size of key: {}", key.len());
            return Err(if sigil == b'#' {
                ExpressionError::new(text + &size)
            } else {
                ExpressionError::of_size(text, size)
            });
        }
        if !is_placeholder(key, sigil) {
            return Err(ExpressionError::new(invalid(&format!("Syntax error; key: \"{key}\""))));
        }
    }
    Ok(())
}

fn is_placeholder(key: &str, sigil: u8) -> bool {
    match key.as_bytes().split_first() {
        Some((first, rest)) => {
            *first == sigil && !rest.is_empty() && rest.iter().all(|byte| is_word_byte(*byte))
        }
        None => false,
    }
}

fn check_name(key: &str, name: &str) -> Result<(), ExpressionError> {
    let problem = if name.is_empty() {
        "Empty attribute name"
    } else if name.len() > ATTRIBUTE_NAME_BYTES_MAX {
        "Attribute name is too large, must be less than 65536 bytes"
    } else {
        return Ok(());
    };
    Err(ExpressionError::new(format!(
        "ExpressionAttributeNames contains invalid value: {problem} for key {key}"
    )))
}

fn check_total(parameter: &str, bytes: usize) -> Result<(), ExpressionError> {
    if bytes > SUBSTITUTIONS_BYTES_MAX {
        return Err(ExpressionError::new(format!("{parameter} exceeds max size")));
    }
    Ok(())
}
