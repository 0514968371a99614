//! Divides rows into parts, and determines each part's columns.
//!
//! Rows go into different parts if their keys or declared columns differ. Discovered columns are
//! merged. The division is deterministic. The module writes nothing.

use std::sync::Arc;

use rules::archive::{Row, Rows, Schema};

/// Maximum number of columns of one part, inclusive. Each column takes memory while the part is
/// written, and a reader must open every column of a file to read its schema.
pub(super) const PART_COLUMNS_MAX: usize = 500;

/// The rows of one part, unchanged, in the order of their sequence numbers.
pub(super) struct PartRows<'r> {
    /// The columns of the part.
    pub(super) schema: Arc<Schema>,
    /// The rows of the part.
    pub(super) rows: Vec<&'r Row>,
    /// The distinct schemas of the rows so far.
    known: Vec<Arc<Schema>>,
}

impl<'r> PartRows<'r> {
    /// Adds the row if its columns are compatible with the other rows. Returns whether it was added.
    fn take(&mut self, row: &'r Row) -> bool {
        // Rows of one batch share their schema. Comparing pointers first avoids most comparisons of
        // schemas.
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
