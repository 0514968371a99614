//! The table of a project: its name, key and TTL attribute, and their notation in the project's files.

use std::str::FromStr;

use model::KeyAttributeType;
use model::limits::TABLE_NAME_LENGTH_MAX;

use super::failure::InitError;
use super::names::{InvalidName, attribute_name};
use client::endpoint;
use client::table_description::{key_attributes, ttl_attribute};

/// An attribute of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyAttribute {
    pub(super) name: String,
    pub(super) kind: KeyAttributeType,
}

impl KeyAttribute {
    /// Returns the attribute as a member of an item in DynamoDB JSON, with an example value of its type.
    pub(super) fn example(&self) -> String {
        let value = match self.kind {
            KeyAttributeType::S | KeyAttributeType::N => "1",
            KeyAttributeType::B => "MQ==",
        };
        format!(r#""{}":{{"{}":"{value}"}}"#, self.name, self.kind.descriptor())
    }
}

impl FromStr for KeyAttribute {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let wrong = InvalidName("write NAME:TYPE with the type S, N or B, for example id:S");
        let Some((name, kind)) = text.rsplit_once(':') else { return Err(wrong) };
        let Some(kind) = KeyAttributeType::from_descriptor(kind) else { return Err(wrong) };
        Ok(Self { name: attribute_name(name)?, kind })
    }
}

/// A table as a template declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) key: KeyAttribute,
    pub(super) sort: Option<KeyAttribute>,
    pub(super) ttl: Option<String>,
}

impl Table {
    /// Returns a table with this key.
    ///
    /// # Errors
    /// Both parts of the key are the same attribute.
    pub(super) fn new(
        name: &str,
        key: KeyAttribute,
        sort: Option<KeyAttribute>,
        ttl: Option<String>,
    ) -> Result<Self, InitError> {
        if sort.as_ref().is_some_and(|sort| sort.name == key.name) {
            return Err(InitError::Table(format!(
                "`{}` cannot be both partition key and sort key of table `{name}`; name a different sort key",
                key.name
            )));
        }
        Ok(Self { name: name.to_owned(), key, sort, ttl })
    }

    /// Reads the key and the TTL attribute of an existing table.
    ///
    /// # Errors
    /// The table cannot be described, or its attributes have names that would need escapes in a file.
    pub(super) async fn describe(name: &str, url: &str) -> Result<Self, InitError> {
        let client = endpoint::client(url);
        let mut key = Vec::new();
        for (name, kind) in key_attributes(&client, name)
            .await
            .map_err(|failure| InitError::Table(failure.to_string()))?
        {
            key.push(KeyAttribute { name: plain(&name)?, kind });
        }
        let ttl = ttl_attribute(&client, name)
            .await
            .map_err(|failure| InitError::Table(failure.to_string()))?;
        let mut key = key.into_iter();
        let Some(partition) = key.next() else {
            return Err(InitError::Table(format!("the description of table `{name}` has no key")));
        };
        Self::new(name, partition, key.next(), ttl.as_deref().map(plain).transpose()?)
    }

    /// Returns the name of a second table: the name of this table with the suffix `ending`.
    ///
    /// # Errors
    /// The name would be too long.
    pub(super) fn derived(&self, ending: &str) -> Result<String, InitError> {
        let name = format!("{}{ending}", self.name);
        if name.len() <= TABLE_NAME_LENGTH_MAX {
            return Ok(name);
        }
        Err(InitError::Table(format!(
            "the derived table name `{name}` has more than {TABLE_NAME_LENGTH_MAX} characters; use a shorter name"
        )))
    }

    /// Returns the attributes of the key, partition key first.
    pub(super) fn key_attributes(&self) -> impl Iterator<Item = &KeyAttribute> {
        std::iter::once(&self.key).chain(&self.sort)
    }

    /// Returns the `KeySchema` for the template.
    pub(super) fn key_schema(&self) -> String {
        let types = ["HASH", "RANGE"];
        let parts = self.key_attributes().zip(types).map(|(attribute, kind)| {
            format!(r#"{{AttributeName: "{}", KeyType: {kind}}}"#, attribute.name)
        });
        format!("[{}]", parts.collect::<Vec<_>>().join(", "))
    }

    /// Returns the key of an item in DynamoDB JSON, without its braces.
    pub(super) fn example(&self) -> String {
        examples(self.key_attributes())
    }
}

/// Returns the `AttributeDefinitions` for the template.
pub(super) fn definitions<'a>(attributes: impl Iterator<Item = &'a KeyAttribute>) -> String {
    let parts = attributes.map(|attribute| {
        let (name, kind) = (&attribute.name, attribute.kind.descriptor());
        format!(r#"{{AttributeName: "{name}", AttributeType: {kind}}}"#)
    });
    format!("[{}]", parts.collect::<Vec<_>>().join(", "))
}

/// Returns the attributes as members of an item in DynamoDB JSON, with example values.
pub(super) fn examples<'a>(attributes: impl Iterator<Item = &'a KeyAttribute>) -> String {
    attributes.map(KeyAttribute::example).collect::<Vec<_>>().join(",")
}

fn plain(name: &str) -> Result<String, InitError> {
    attribute_name(name).map_err(|error| InitError::Table(format!("attribute `{name}`: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_attribute_is_a_name_and_a_type() {
        for (text, expected) in [
            ("id:S", Some(r#""id":{"S":"1"}"#)),
            ("a:b:N", Some(r#""a:b":{"N":"1"}"#)),
            ("größe x:B", Some(r#""größe x":{"B":"MQ=="}"#)),
            ("id", None),
            ("id:X", None),
            (":S", None),
            ("a\"b:S", None),
        ] {
            let found = text.parse::<KeyAttribute>().ok();
            assert_eq!(found.map(|it| it.example()).as_deref(), expected, "{text}");
        }
    }
}
