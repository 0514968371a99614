//! Which rows stand in one part, and with which columns.
//!
//! Rows whose keys or declared columns differ go into parts of their own; discovered columns are
//! united. The same rows give the same parts. Nothing is written here.

use std::sync::Arc;

use rules::archive::{Row, Rows, Schema};

/// Columns of one part at most, inclusive. Each one costs memory while the part is written, and
/// readers open all of a file's columns to know them.
pub(super) const PART_COLUMNS_MAX: usize = 500;

/// The rows of one part, by sequence number, as they came.
pub(super) struct PartRows<'r> {
    /// The columns of the part.
    pub(super) schema: Arc<Schema>,
    /// Its rows.
    pub(super) rows: Vec<&'r Row>,
    /// The columns of rows that are here already.
    known: Vec<Arc<Schema>>,
}

impl<'r> PartRows<'r> {
    /// Takes the row, unless its columns do not go with the others.
    fn take(&mut self, row: &'r Row) -> bool {
        // Rows of one batch share their columns, so they are seldom compared.
        if !self.known.iter().any(|known| Arc::ptr_eq(known, &row.schema)) {
            let Some(union) = self.schema.union(&row.schema, PART_COLUMNS_MAX) else {
                return false;
            };
            if union != *self.schema {
                self.schema = Arc::new(union);
            }
            self.known.push(Arc::clone(&row.schema));
        }
        self.rows.push(row);
        true
    }
}

/// Divides rows into parts.
pub(super) fn rows_of_parts(rows: &Rows) -> Vec<PartRows<'_>> {
    let mut parts: Vec<PartRows<'_>> = Vec::new();
    for row in rows.iter() {
        if !parts.iter_mut().any(|part| part.take(row)) {
            let (schema, known) = (Arc::clone(&row.schema), vec![Arc::clone(&row.schema)]);
            parts.push(PartRows { schema, rows: vec![row], known });
        }
    }
    parts.sort_by(|a, b| a.schema.cmp(&b.schema));
    parts
}
