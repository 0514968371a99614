//! Key templates such as `CUSTOMER#{customerID}`, which compute a key value from an item's
//! attributes.
//!
//! A template with only one reference yields the attribute's value with its type. Any other template
//! yields a string. The caller checks the result against the key schema of the table.

use model::{AttributeValue, Item};
use thiserror::Error;

/// An invalid template, or an item without a key value for a template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyTemplateError {
    /// A reference with an empty name.
    #[error("`{{{0}}}` names no attribute")]
    EmptyName(String),
    /// A brace without its counterpart.
    #[error("unmatched brace; write `{{name}}`, or `{{{{` for a brace")]
    UnmatchedBrace,
    /// An empty template.
    #[error("a key cannot be empty")]
    Empty,
    /// An attribute that the item lacks.
    #[error("the item lacks the attribute `{0}`, which its key needs")]
    MissingAttribute(String),
    /// An attribute that is neither a string nor a number.
    #[error("`{path}` is of type {found}, which cannot be part of a key")]
    WrongType {
        /// The path of the attribute.
        path: String,
        /// The descriptor of its type.
        found: &'static str,
    },
}

/// A parsed and checked template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTemplate(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A path of names, outermost first.
    Reference(Vec<String>),
}

impl KeyTemplate {
    /// Parses a template. `{{` and `}}` are escaped braces.
    ///
    /// # Errors
    /// Returns the error in the template.
    pub fn parse(text: &str) -> Result<Self, KeyTemplateError> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = brace.strip_prefix("{{") {
                plain.push('{');
                rest = after;
            } else if let Some(after) = brace.strip_prefix("}}") {
                plain.push('}');
                rest = after;
            } else if let Some((path, after)) =
                brace.strip_prefix('{').and_then(|inner| inner.split_once('}'))
            {
                let path: Vec<String> =
                    path.split('.').map(|name| name.trim().to_owned()).collect();
                if path.iter().any(String::is_empty) {
                    return Err(KeyTemplateError::EmptyName(path.join(".")));
                }
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                parts.push(Part::Reference(path));
                rest = after;
            } else {
                return Err(KeyTemplateError::UnmatchedBrace);
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        if parts.is_empty() {
            return Err(KeyTemplateError::Empty);
        }
        Ok(Self(parts))
    }

    /// Returns the attributes to which the template refers, by their outermost names.
    #[must_use]
    pub fn references(&self) -> Vec<&str> {
        self.paths().filter_map(|path| path.first().map(String::as_str)).collect()
    }

    /// Returns the paths to which the template refers, outermost name first.
    pub(super) fn paths(&self) -> impl Iterator<Item = &[String]> {
        self.0.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Reference(path) => Some(path.as_slice()),
        })
    }

    /// Returns the key value for an item.
    ///
    /// # Errors
    /// When an attribute is missing, or is neither a string nor a number.
    pub fn value(&self, item: &Item) -> Result<AttributeValue, KeyTemplateError> {
        if let [Part::Reference(path)] = &self.0[..] {
            return find(item, path).cloned();
        }
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Reference(path) => match find(item, path)? {
                    AttributeValue::S(value) => text.push_str(value),
                    AttributeValue::N(number) => text.push_str(&number.to_string()),
                    other => {
                        let found = other.attribute_type().descriptor();
                        return Err(KeyTemplateError::WrongType { path: path.join("."), found });
                    }
                },
            }
        }
        Ok(AttributeValue::S(text))
    }
}

fn find<'i>(item: &'i Item, path: &[String]) -> Result<&'i AttributeValue, KeyTemplateError> {
    let missing = || KeyTemplateError::MissingAttribute(path.join("."));
    let (first, rest) = path.split_first().ok_or_else(missing)?;
    let mut value = item.get(first).ok_or_else(missing)?;
    for name in rest {
        value = value.as_map().and_then(|members| members.get(name)).ok_or_else(missing)?;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    #[test]
    fn templates() {
        let item = item_from_str(
            r#"{"id":{"S":"7"},"n":{"N":"1.50"},"a":{"M":{"b":{"S":"x"}}},"l":{"L":[]},"bin":{"B":"AA=="}}"#,
        )
        .unwrap();
        for (template, expected) in [
            ("CUSTOMER#{id}", Ok("\"CUSTOMER#7\"")),
            ("{id}#{n}", Ok("\"7#1.5\"")),
            ("{ a.b }/{{x}}", Ok("\"x/{x}\"")),
            ("PROFILE", Ok("\"PROFILE\"")),
            ("{bin}", Ok("binary")),
            ("{n}", Ok("1.5")),
            ("x{l}", Err("`l` is of type L, which cannot be part of a key")),
            ("{a.c}", Err("the item lacks the attribute `a.c`, which its key needs")),
            ("x{", Err("unmatched brace; write `{name}`, or `{{` for a brace")),
            ("{}", Err("`{}` names no attribute")),
            ("", Err("a key cannot be empty")),
        ] {
            let value = KeyTemplate::parse(template).and_then(|template| template.value(&item));
            let text = value.map(|value| match value {
                AttributeValue::S(text) => format!("\"{text}\""),
                AttributeValue::N(number) => number.to_string(),
                _ => "binary".to_owned(),
            });
            let text = text.map_err(|error| error.to_string());
            assert_eq!(text.as_deref().map_err(String::as_str), expected, "{template}");
        }
    }
}
