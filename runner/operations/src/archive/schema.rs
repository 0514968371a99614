//! The columns that a table's parts have together, and where parts disagree.
//!
//! It reads footers only. What is made of the columns is decided elsewhere.

use std::collections::BTreeMap;

use model::json;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use rules::archive::SYSTEM_COLUMNS;

use super::cell::CellType;
use super::condition::DAY;
use super::reading::READS_AT_ONCE;
use super::source::{Part, Source};
use client::output::counted;

/// Columns that a message names at most.
const NAMED_MAX: usize = 20;
/// Where a part says which attribute each of its columns is from.
const COLUMNS_METADATA: &str = "weir.columns";

/// One column over all parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnionColumn {
    /// Its name.
    pub(super) name: String,
    /// The attribute's path, for a column of the table.
    pub(super) path: Option<String>,
    /// Each type that it has, with the number of parts and the first part that have it so.
    pub(super) types: BTreeMap<CellType, (usize, String)>,
}

/// The columns of a table over all parts: the table's own by first appearance, then the archive's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Union {
    /// The columns.
    pub(super) columns: Vec<UnionColumn>,
}

impl UnionColumn {
    /// The type, if all parts agree.
    pub(super) fn only_type(&self) -> Option<CellType> {
        match self.types.len() {
            1 => self.types.keys().next().copied(),
            _ => None,
        }
    }

    /// Whether the archive has this column for every table.
    pub(super) fn is_system(&self) -> bool {
        SYSTEM_COLUMNS.iter().any(|(name, _)| *name == self.name)
    }

    /// What parts disagree about; `None` if they agree.
    pub(super) fn conflict(&self) -> Option<String> {
        if self.types.len() < 2 {
            return None;
        }
        let types = self.types.iter().map(|(cell_type, (parts, first))| {
            format!("{cell_type} in {}, first in {first}", counted(parts, "part", "parts"))
        });
        let types: Vec<String> = types.collect();
        Some(format!("column `{}` has several types: {}", self.name, types.join("; ")))
    }
}

impl Union {
    /// Reads the footers of parts.
    ///
    /// # Errors
    /// A part that cannot be read, or that has a column of a type that no archive part has.
    pub(super) async fn read(source: &Source, parts: &[Part]) -> Result<Self, String> {
        let mut union = Self::default();
        let parts: Vec<&Part> = parts.iter().collect();
        // A footer takes some 100 KB and a day may have 100,000 parts: only a few are in memory.
        for some in parts.chunks(READS_AT_ONCE) {
            union.add_all(source, some).await?;
        }
        union.order();
        Ok(union)
    }

    /// Reads the footers of some more parts, all at the same time.
    ///
    /// # Errors
    /// As [`Union::read`].
    async fn add_all(&mut self, source: &Source, some: &[&Part]) -> Result<(), String> {
        let reads: Vec<_> = some.iter().map(|part| source.footer(part)).collect();
        let footers = futures::future::try_join_all(reads).await?;
        some.iter().zip(footers).try_for_each(|(part, footer)| self.add(part, &footer))
    }

    /// Puts the archive's columns behind those of the table.
    fn order(&mut self) {
        self.columns.sort_by_key(|column| {
            SYSTEM_COLUMNS.iter().position(|(name, _)| *name == column.name).map_or(0, |at| at + 1)
        });
    }

    fn add(&mut self, part: &Part, footer: &ArrowReaderMetadata) -> Result<(), String> {
        let paths = paths_of(footer);
        for field in footer.schema().fields() {
            let cell_type = CellType::of(field.data_type()).ok_or_else(|| {
                format!(
                    "part `{}`: column `{}` has the type {}, which no archive part has; move the file away from the archive",
                    part.name,
                    field.name(),
                    field.data_type()
                )
            })?;
            let at = self.columns.iter().position(|column| column.name == *field.name());
            let at = at.unwrap_or_else(|| {
                let name = field.name().clone();
                self.columns.push(UnionColumn { name, path: None, types: BTreeMap::new() });
                self.columns.len() - 1
            });
            if let Some(column) = self.columns.get_mut(at) {
                let entry = column.types.entry(cell_type).or_insert((0, part.name.clone()));
                entry.0 += 1;
                if column.path.is_none() {
                    column.path = paths.get(field.name()).cloned();
                }
            }
        }
        Ok(())
    }

    /// The column of a name.
    pub(super) fn column(&self, name: &str) -> Option<&UnionColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Which columns there are, for somebody who asked for one that is not there: all of a few, else
    /// those whose names are most like it.
    pub(super) fn names_like(&self, wanted: &str) -> String {
        let mut names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        names.push(DAY);
        let count = names.len();
        if count <= NAMED_MAX {
            return format!("columns are {}", names.join(", "));
        }
        let wanted = wanted.to_lowercase();
        names.sort_by_cached_key(|name| strsim::osa_distance(&wanted, &name.to_lowercase()));
        names.truncate(NAMED_MAX);
        format!(
            "of {count} columns the ones most like it are {}; `weir archive ddl --engine duckdb` has all",
            names.join(", ")
        )
    }
}

/// The attribute's path by column. A part that does not tell it has none.
fn paths_of(footer: &ArrowReaderMetadata) -> BTreeMap<String, String> {
    told_columns(footer).into_iter().map(|(name, (path, _))| (name, path)).collect()
}

/// The attribute's path and the declared type by column, as a part tells them.
pub(super) fn told_columns(footer: &ArrowReaderMetadata) -> BTreeMap<String, (String, String)> {
    let pairs = footer.metadata().file_metadata().key_value_metadata();
    let text = pairs
        .and_then(|pairs| pairs.iter().find(|pair| pair.key == COLUMNS_METADATA))
        .and_then(|pair| pair.value.as_deref());
    let Some(Ok(tree)) = text.map(|text| json::parse(text.as_bytes())) else {
        return BTreeMap::new();
    };
    let members = tree.as_object().unwrap_or_default().iter();
    members
        .filter_map(|(name, column)| {
            let text = |member: &str| Some(column.get(member)?.as_str()?.to_owned());
            Some((name.to_string(), (text("path")?, text("type").unwrap_or_default())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_columns_those_that_are_most_like_the_wanted_one_are_named() {
        let union = |count: usize| {
            let names = (0..count).map(|number| format!("attribute_{number}_s"));
            let names = ["Rating", "year"].map(str::to_owned).into_iter().chain(names);
            let column = |name| UnionColumn { name, path: None, types: BTreeMap::new() };
            Union { columns: names.map(column).collect() }
        };
        let said = union(1).names_like("yeer");
        assert_eq!(said, "columns are Rating, year, attribute_0_s, dt");
        let said = union(1_126).names_like("rating");
        assert!(said.starts_with("of 1129 columns the ones most like it are Rating, "), "{said}");
        assert_eq!(said.split(", ").count(), NAMED_MAX);
    }
}
