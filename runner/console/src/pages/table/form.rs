//! The form of the query builder, and its conversion from and to a query string.
//!
//! Fields contain the strings that the person typed. [`super::request`] parses and validates them.

use serde::Serialize;

use crate::query::{Query, href};

/// Default of [`Form::limit`].
pub(super) const LIMIT_DEFAULT: &str = "25";

/// The fields of the form. An empty string means that the field is not used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Form {
    /// The name of the index; if empty, the table itself is read.
    pub(crate) index: String,
    /// The value of the partition key; if empty, the request is a Scan.
    pub(crate) pk: String,
    /// The value of the second attribute of a multi-attribute partition key.
    pub(crate) pk2: String,
    /// The value of the third attribute of a multi-attribute partition key.
    pub(crate) pk3: String,
    /// The value of the fourth attribute of a multi-attribute partition key.
    pub(crate) pk4: String,
    /// The operator of the sort key.
    pub(crate) sk_op: String,
    /// The operand of the sort key, or the lower bound of `between`.
    pub(crate) sk: String,
    /// The upper bound of `between` for the sort key.
    pub(crate) sk_to: String,
    /// The document path that the filter reads.
    pub(crate) filter: String,
    /// The operator of the filter.
    pub(crate) filter_op: String,
    /// The type of the filter's operand.
    pub(crate) filter_type: String,
    /// The operand of the filter, or the lower bound of `between`.
    pub(crate) filter_value: String,
    /// The upper bound of `between` for the filter.
    pub(crate) filter_to: String,
    /// The document paths of the projection.
    pub(crate) project: String,
    /// The order of a Query: `desc` is descending.
    pub(crate) order: String,
    /// The consistency: `1` selects a strongly consistent read.
    pub(crate) consistent: String,
    /// The maximum number of items to read.
    pub(crate) limit: String,
    /// The key after which the page begins, as DynamoDB JSON.
    pub(crate) after: String,
    /// The index of the first column that is shown, from 0.
    pub(crate) column: String,
}

impl Form {
    /// Reads the fields of a query string.
    pub(crate) fn of(query: &Query) -> Self {
        let mut form = Self::default();
        for (name, field) in form.fields_mut() {
            query.get(name).unwrap_or_default().clone_into(field);
        }
        form
    }

    fn fields_mut(&mut self) -> [(&'static str, &mut String); 19] {
        [
            ("index", &mut self.index),
            ("pk", &mut self.pk),
            ("pk2", &mut self.pk2),
            ("pk3", &mut self.pk3),
            ("pk4", &mut self.pk4),
            ("sk_op", &mut self.sk_op),
            ("sk", &mut self.sk),
            ("sk_to", &mut self.sk_to),
            ("filter", &mut self.filter),
            ("filter_op", &mut self.filter_op),
            ("filter_type", &mut self.filter_type),
            ("filter_value", &mut self.filter_value),
            ("filter_to", &mut self.filter_to),
            ("project", &mut self.project),
            ("order", &mut self.order),
            ("consistent", &mut self.consistent),
            ("limit", &mut self.limit),
            ("after", &mut self.after),
            ("column", &mut self.column),
        ]
    }

    /// Returns the address of a path with the used fields.
    pub(crate) fn href(&self, path: &[&str]) -> String {
        let mut form = self.clone();
        let fields = form.fields_mut().map(|(name, text)| (name, &**text));
        href(path, &fields)
    }

    /// Returns whether the form selects all items of the table.
    pub(crate) fn is_plain(&self) -> bool {
        let conditions = [&self.index, &self.pk, &self.pk2, &self.pk3, &self.pk4, &self.filter];
        conditions.iter().all(|text| text.is_empty())
    }

    /// Returns the form for the page that begins after a key.
    pub(crate) fn after(&self, key: String) -> Self {
        Self { after: key, ..self.clone() }
    }

    /// Returns the form for the same page with another first column.
    pub(crate) fn with_column(&self, column: usize) -> Self {
        let column = if column == 0 { String::new() } else { column.to_string() };
        Self { column, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_carries_every_used_field() {
        let query = "index=by-title&pk=a%26b%3D%22c%22+%3C%C3%A9%3E&limit=10&unknown=1&sk=";
        let form = Form::of(&Query::parse(query).unwrap());
        assert_eq!((form.pk.as_str(), form.sk.as_str()), ("a&b=\"c\" <é>", ""));
        let address = form.href(&["tables", "a.b"]);
        let (path, query) = address.split_once('?').unwrap();
        assert_eq!((path, query.contains("unknown")), ("/tables/a%2Eb", false));
        assert_eq!(Form::of(&Query::parse(query).unwrap()), form);
        assert_eq!(form.with_column(40).column, "40");
        assert_eq!(form.with_column(0), form);
        assert_eq!(form.after("{}".to_owned()).after, "{}");
        let sent = "index=&pk=&sk_op=%3D&filter=&filter_op=%3D&filter_type=S&limit=25";
        assert!(!form.is_plain() && Form::of(&Query::parse(sent).unwrap()).is_plain());
    }
}
