//! The fields of a request, from its query string or from a submitted form.
//!
//! This module also formats addresses, and encodes fields so that the browser sends them back
//! unchanged.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::PageError;

/// The maximum number of fields. A form of a page has far fewer.
const FIELDS_MAX: usize = 256;

/// The characters of a path segment or a field that are encoded. The dot is encoded too: a path
/// that ends with `.json` requests the JSON version, but a table name may also end with `.json`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// The fields of a request, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Creates the fields of a request that is not from HTTP.
    pub(crate) fn of(fields: Vec<(String, String)>) -> Self {
        Self(fields)
    }

    /// Parses `application/x-www-form-urlencoded`.
    ///
    /// # Errors
    /// There are too many fields, or a field is not UTF-8.
    pub(crate) fn parse(text: &str) -> Result<Self, PageError> {
        let mut fields = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            if fields.len() == FIELDS_MAX {
                let instead = format!("at most {FIELDS_MAX} fields");
                return Err(PageError::bad_input("the request", "too many fields", instead));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            fields.push((decoded(name)?, decoded(value)?));
        }
        Ok(Self(fields))
    }

    /// Returns the value of a field; `None` if the field is missing or empty. A form sends an
    /// unused field as an empty field.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let values =
            self.0.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str());
        values.into_iter().find(|value| !value.is_empty())
    }

    /// Returns a number between 1 and `max`; `default` if the field is missing.
    ///
    /// # Errors
    /// The value is not a whole number in this range.
    pub(crate) fn number(
        &self,
        name: &str,
        default: usize,
        max: usize,
    ) -> Result<usize, PageError> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let number = text.parse().ok().filter(|number| (1..=max).contains(number));
        number.ok_or_else(|| {
            PageError::bad_input(
                name,
                format!("`{text}` is not a number in the allowed range"),
                format!("1 to {max}"),
            )
        })
    }

    /// Returns the names and values of the fields.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Decodes a field of a query string or form.
fn decoded(text: &str) -> Result<String, PageError> {
    segment(&text.replace('+', " "))
}

/// Decodes a segment of a path.
///
/// # Errors
/// The bytes are not UTF-8.
pub(crate) fn segment(text: &str) -> Result<String, PageError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| {
        PageError::bad_input("the address", "a path segment is not UTF-8", "percent-encoded UTF-8")
    })
}

/// Returns an address with these path segments and fields. Omits empty fields.
pub(crate) fn href(path: &[&str], fields: &[(&str, &str)]) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
    let mut address: String = path.iter().map(|part| format!("/{}", encoded(part))).collect();
    let mut mark = '?';
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        address.push_str(&format!("{mark}{}={}", encoded(name), encoded(value)));
        mark = '&';
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        let fields = [("table", "a b&c=d+e"), ("key", "{\"id\":\"ü/../?#%\"}"), ("empty", "")];
        let address = href(&["tables", "x/y.json"], &fields);
        assert!(
            !address.ends_with(".json") && address.starts_with("/tables/x%2Fy%2Ejson?"),
            "{address}"
        );
        let (path, query) = address.split_once('?').unwrap();
        assert_eq!(segment(path.rsplit('/').next().unwrap()).unwrap(), "x/y.json");
        let query = Query::parse(query).unwrap();
        assert_eq!(query.get("table"), Some("a b&c=d+e"));
        assert_eq!(query.get("key"), Some("{\"id\":\"ü/../?#%\"}"));
        assert_eq!(query.get("empty"), None);
    }

    #[test]
    fn a_field_has_bounds() {
        let query = Query::parse("limit=5&zero=0&text=x&a=&a=2").unwrap();
        assert_eq!(query.number("limit", 50, 100).unwrap(), 5);
        assert_eq!(query.number("absent", 50, 100).unwrap(), 50);
        assert_eq!(query.get("a"), Some("2"));
        for (name, max) in [("limit", 4), ("zero", 9), ("text", 9)] {
            assert!(query.number(name, 1, max).is_err(), "{name}");
        }
        assert!(Query::parse("a=%ff").is_err());
        assert!(Query::parse(&"a=1&".repeat(FIELDS_MAX)).is_ok());
        assert!(Query::parse(&"a=1&".repeat(FIELDS_MAX + 1)).is_err());
    }
}
