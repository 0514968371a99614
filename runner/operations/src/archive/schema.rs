//! The common columns of a table's parts, and the columns in which parts differ.
//!
//! The module reads only the footers of parts.

use std::collections::{BTreeMap, BTreeSet};

use model::json;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use rules::archive::SYSTEM_COLUMNS;

use super::cell::CellType;
use super::condition::DAY;
use super::reading::READS_AT_ONCE;
use super::source::{Part, Source};
use client::failure::{Result, fatal};
use client::output::counted;

/// Maximum number of columns in a message.
const NAMED_MAX: usize = 20;
/// Metadata key with the attribute of each column.
const COLUMNS_METADATA: &str = "weir.columns";

/// A column of a table, over all parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnionColumn {
    /// The column's name.
    pub(super) name: String,
    /// The attribute's path, if the column contains an attribute of the table.
    pub(super) path: Option<String>,
    /// The types that the column has, each with the number of parts that use the type and the name
    /// of the first of these parts.
    pub(super) types: BTreeMap<CellType, (usize, String)>,
}

/// The columns of a table over all parts: first the columns of attributes in order of appearance,
/// then the archive's own columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Union {
    pub(super) columns: Vec<UnionColumn>,
}

impl UnionColumn {
    /// Returns the type of the column if all parts have the same type, otherwise `None`.
    pub(super) fn only_type(&self) -> Option<CellType> {
        match self.types.len() {
            1 => self.types.keys().next().copied(),
            _ => None,
        }
    }

    /// Returns true for columns that every archive has.
    pub(super) fn is_system(&self) -> bool {
        SYSTEM_COLUMNS.iter().any(|(name, _)| *name == self.name)
    }

    /// Describes how the column's types differ between parts; `None` if all types are the same.
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
    /// When a part cannot be read, or has a column of an unknown type.
    pub(super) async fn read(source: &Source, parts: &[Part]) -> Result<Self> {
        let mut union = Self::default();
        let parts: Vec<&Part> = parts.iter().collect();
        // A footer takes some 100 KB and a day may have 100,000 parts, so only a few footers are in
        // memory at a time.
        for some in parts.chunks(READS_AT_ONCE) {
            union.add_all(source, some).await?;
        }
        union.order();
        Ok(union)
    }

    /// Reads the footers of more parts concurrently.
    ///
    /// # Errors
    /// The same as [`Union::read`].
    async fn add_all(&mut self, source: &Source, some: &[&Part]) -> Result<()> {
        let reads: Vec<_> = some.iter().map(|part| source.footer(part)).collect();
        let footers = futures::future::try_join_all(reads).await?;
        some.iter().zip(footers).try_for_each(|(part, footer)| self.add(part, &footer))
    }

    /// Moves the archive's own columns after the columns of attributes.
    fn order(&mut self) {
        self.columns.sort_by_key(|column| {
            SYSTEM_COLUMNS.iter().position(|(name, _)| *name == column.name).map_or(0, |at| at + 1)
        });
    }

    fn add(&mut self, part: &Part, footer: &ArrowReaderMetadata) -> Result<()> {
        let paths = paths_of(footer);
        for field in footer.schema().fields() {
            let cell_type = CellType::of(field.data_type()).ok_or_else(|| {
                fatal!(
                    "part `{}`: column `{}` has the type {}, which Weir does not write into archives; move the file out of the archive",
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

    /// Returns the column with a name.
    pub(super) fn column(&self, name: &str) -> Option<&UnionColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Lists columns for a message about an unknown name: all columns if there are few, otherwise the
    /// columns with the most similar names.
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
            "of {count} columns, the most similar are {}; `weir archive ddl --engine duckdb` lists all",
            names.join(", ")
        )
    }
}

/// Returns the attribute's path of each column; empty for a part without this metadata.
fn paths_of(footer: &ArrowReaderMetadata) -> BTreeMap<String, String> {
    told_columns(footer).into_iter().map(|(name, (path, _))| (name, path)).collect()
}

/// Returns the attributes' paths of all columns that are in a part's metadata.
pub(super) fn declared_paths(footer: &ArrowReaderMetadata) -> BTreeSet<String> {
    paths_of(footer).into_values().collect()
}

/// Returns the attribute's path and the declared type of each column, from a part's metadata.
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
        assert!(said.starts_with("of 1129 columns, the most similar are Rating, "), "{said}");
        // The first comma is before the names.
        assert_eq!(said.split(", ").count(), NAMED_MAX + 1);
    }
}
