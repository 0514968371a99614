//! The grammar of tables and indexes in a statement.

use super::PartiqlError;
use super::parser::{Parsed, Parser};

impl Parser<'_> {
    /// Parses the table after `INSERT INTO`. DynamoDB accepts no alias in this position.
    pub(super) fn inserted_table(&mut self) -> Parsed<String> {
        let is_name = self.is_name();
        let is_whole = self.is_word(1, "VALUE") || self.is_word(1, "VALUES");
        let is_value = ["<<", "[", "{", "("].iter().any(|symbol| self.is_symbol(1, symbol));
        if is_name && !self.is_symbol(1, ".") && !is_whole && !is_value {
            return Err(PartiqlError::malformed("Unexpected token after expression"));
        }
        let at = self.place_at(self.position);
        self.table_alone(&format!(
            "FROM clause may only contain a single table name in data manipulation statements at {at}"
        ))
    }

    /// Parses the table of an `UPDATE` or `DELETE`.
    pub(super) fn table(&mut self) -> Parsed<String> {
        self.table_alone("This operation is not supported on an index")
    }

    /// Parses a table without an index. `refusal` is the error message if an index follows.
    fn table_alone(&mut self, refusal: &str) -> Parsed<String> {
        self.expect_name()?;
        let read = self.table_and_index();
        let (table, index) = self.or_refuse(read, (String::new(), None))?;
        if index.is_some() {
            self.refuse(PartiqlError::new(refusal));
        }
        if self.is_alias() {
            self.take_word("AS");
            self.name()?;
        }
        Ok(table)
    }

    pub(super) fn table_and_index(&mut self) -> Parsed<(String, Option<String>)> {
        let mut parts = vec![self.name()?];
        while self.take_symbol(".") {
            parts.push(self.name()?);
        }
        if parts.iter().any(String::is_empty) {
            return Err(PartiqlError::new("Path component cannot be an empty string"));
        }
        let is_alias = self.is_alias();
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(_), Some(_), Some(_)) => {
                Err(PartiqlError::new("A path may contain at most 2 components in the FROM clause"))
            }
            _ if is_alias => Err(PartiqlError::new("Aliasing is not supported")),
            (Some(table), index, _) => Ok((table, index)),
            (None, ..) => Err(self.unexpected()),
        }
    }
}
