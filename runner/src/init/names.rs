//! The names of tables and attributes that a project may have.
//!
//! The files of a project contain these names between quotes, without escapes.

use model::limits::{TABLE_NAME_LENGTH_MAX, TABLE_NAME_LENGTH_MIN};

/// The maximum number of bytes of an attribute's name in a key.
const ATTRIBUTE_NAME_MAX: usize = 255;

/// The characters that would need quotes or escapes in a file of the project.
const NOT_PLAIN: &[char] = &['"', '\'', '\\', '`', '$', '{', '}'];

/// The reason why a name cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct InvalidName(pub(super) &'static str);

/// Returns the name of a table, if it is valid.
///
/// # Errors
/// DynamoDB does not accept the name.
pub(super) fn table_name(text: &str) -> Result<String, InvalidName> {
    let is_letter = |c: u8| c.is_ascii_alphanumeric() || b"_.-".contains(&c);
    if (TABLE_NAME_LENGTH_MIN..=TABLE_NAME_LENGTH_MAX).contains(&text.len())
        && text.bytes().all(is_letter)
    {
        return Ok(text.to_owned());
    }
    Err(InvalidName("a table name has 3 to 255 characters of a-z, A-Z, 0-9, `_`, `-` and `.`"))
}

/// Returns the name of an attribute that every file of a project can contain between quotes.
///
/// # Errors
/// The name is empty, too long for a key, or has characters that would need escapes.
pub(super) fn attribute_name(text: &str) -> Result<String, InvalidName> {
    let is_plain = |c: char| !c.is_control() && !NOT_PLAIN.contains(&c);
    match text.len() {
        0 => Err(InvalidName("an attribute name must not be empty")),
        1..=ATTRIBUTE_NAME_MAX if text.chars().all(is_plain) => Ok(text.to_owned()),
        1..=ATTRIBUTE_NAME_MAX => Err(InvalidName(
            "attribute names with quotes, `\\`, `$`, braces or control characters are not supported here: use a plain name, then edit the files of the project",
        )),
        _ => Err(InvalidName("the name of a key attribute is at most 255 bytes long")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_need_escapes_are_refused() {
        for name in ["id", "a:b", "größe x", &"x".repeat(255)] {
            assert_eq!(attribute_name(name).as_deref(), Ok(name));
        }
        for name in ["", "a\"b", "${x}", "it's", "a\nb", &"x".repeat(256)] {
            assert!(attribute_name(name).is_err(), "{name}");
        }
        assert_eq!(table_name("Orders.2026_v-1").as_deref(), Ok("Orders.2026_v-1"));
        assert!(table_name("a/b").is_err() && table_name("ab").is_err());
    }
}
