//! Typed columns: their declaration, and the columns of a row.
//!
//! `content` converts an attribute to a column's value.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use model::AttributeType;
use model::json::ItemView;
use thiserror::Error;

/// The columns that follow the typed columns in every archive object, with their types, in order.
pub const SYSTEM_COLUMNS: [(&str, &str); 12] = [
    ("_item", "string"),
    ("_event_id", "string"),
    ("_sequence_number", "string"),
    ("_event_name", "string"),
    ("_deleted_by", "string"),
    ("_deleted_at", "timestamp"),
    ("_expires_at", "timestamp"),
    ("_ttl_raw", "bigint"),
    ("_table", "string"),
    ("_stream_arn", "string"),
    ("_schema_version", "int"),
    ("_coercions", "array<string>"),
];
/// The columns that readers derive from an object's path. An object must not have columns with
/// these names.
pub const PATH_COLUMNS: [&str; 2] = ["table", "dt"];
/// The maximum number of digits of a decimal column, inclusive: the precision of 128-bit decimals
/// in Parquet and SQL, and of DynamoDB's numbers.
const DECIMAL_PRECISION_MAX: u8 = 38;

/// The type of a column, named as in the SQL of Athena and DuckDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColumnType {
    /// Text. Numbers are stored in exact decimal notation.
    String,
    /// 64-bit integer.
    Bigint,
    /// Exact decimal number.
    Decimal {
        /// The number of digits, 1 to 38.
        precision: u8,
        /// The number of digits after the point, 0 to `precision`.
        scale: u8,
    },
    /// True or false.
    Boolean,
    /// Bytes.
    Binary,
    /// Any value as plain JSON. Numbers are exact, sets are arrays, and binary values are base64.
    Json,
}

/// The path of an attribute: the names of nested maps, outermost first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(Vec<String>);

/// A typed column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column {
    /// The name in lower snake case, unique among the columns.
    pub name: String,
    /// The path of the value in the item.
    pub path: Path,
    /// The column's type.
    pub column_type: ColumnType,
}

/// The typed columns of rows: first the key attributes by name, then the declared columns in the
/// order of declaration, then the discovered columns by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Schema {
    columns: Vec<Column>,
    /// The number of key columns and declared columns. All later columns are discovered.
    base: usize,
}

/// The reason why a declaration of columns is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ColumnsError {
    /// The entry is not of the form `path:type`.
    #[error(
        "column `{0}` is not of the form PATH:TYPE, such as `info.rating:decimal(4,1)`; types are string, bigint, decimal(p,s), boolean, binary, json"
    )]
    Form(String),
    /// A precision or scale is out of range.
    #[error("column `{0}`: decimal(p,s) needs 1 <= p <= 38 and s <= p")]
    Decimal(String),
    /// Two paths have the same column name, or the archive itself uses the column name of a path.
    #[error(
        "column `{path}` would be named `{name}`, but {taken_by} already has that name; remove a column: its value stays readable in `_item`"
    )]
    Collision {
        /// The path as declared.
        path: String,
        /// The column name that the path becomes.
        name: String,
        /// The column that already has this name.
        taken_by: String,
    },
}

/// A parsed declaration of columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declaration {
    /// The columns with a declared type.
    pub columns: Arc<[Column]>,
    /// Whether every attribute that is not declared gets a column when it first occurs.
    pub discover: bool,
}

impl Declaration {
    /// Parses a declaration as [`parse_columns`] does. In addition, the entry `*` means every
    /// attribute that is not declared.
    ///
    /// # Errors
    /// Returns the first invalid entry and the reason.
    pub fn parse(declaration: &str) -> Result<Self, ColumnsError> {
        let mut entries: Vec<&str> = split_entries(declaration).collect();
        let declared = entries.len();
        entries.retain(|entry| *entry != "*");
        let discover = entries.len() < declared;
        Ok(Self { columns: parse_columns(&entries.join(","))?.into(), discover })
    }
}

/// Parses a declaration of columns: `path:type`, separated by commas. An empty string declares no
/// columns.
///
/// # Errors
/// Returns the first invalid entry and the reason.
pub fn parse_columns(declaration: &str) -> Result<Vec<Column>, ColumnsError> {
    let mut columns: Vec<Column> = Vec::new();
    for entry in split_entries(declaration) {
        let form = || ColumnsError::Form(entry.to_owned());
        let (path, type_text) = entry.rsplit_once(':').ok_or_else(form)?;
        let path = Path::parse(path.trim()).ok_or_else(form)?;
        let name = path.column_name();
        if name.trim_matches('_').is_empty() {
            return Err(form());
        }
        let column_type = ColumnType::parse(type_text.trim()).map_err(|problem| match problem {
            TypeProblem::Unknown => form(),
            TypeProblem::Range => ColumnsError::Decimal(entry.to_owned()),
        })?;
        let taken_by = if is_reserved(&name) {
            Some("the archive itself".to_owned())
        } else {
            columns.iter().find(|c| c.name == name).map(|c| format!("column `{}`", c.path))
        };
        if let Some(taken_by) = taken_by {
            return Err(ColumnsError::Collision { path: path.to_string(), name, taken_by });
        }
        columns.push(Column { name, path, column_type });
    }
    Ok(columns)
}

pub(super) fn is_reserved(name: &str) -> bool {
    PATH_COLUMNS.contains(&name) || SYSTEM_COLUMNS.iter().any(|(taken, _)| *taken == name)
}

/// Splits at commas that are not inside parentheses. A comma at the end is allowed.
fn split_entries(declaration: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    declaration
        .split(move |character| {
            match character {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            character == ',' && depth == 0
        })
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
}

enum TypeProblem {
    Unknown,
    Range,
}

impl ColumnType {
    fn parse(text: &str) -> Result<Self, TypeProblem> {
        let text: String =
            text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase();
        match text.as_str() {
            "string" => return Ok(Self::String),
            "bigint" => return Ok(Self::Bigint),
            "boolean" => return Ok(Self::Boolean),
            "binary" => return Ok(Self::Binary),
            "json" => return Ok(Self::Json),
            _ => {}
        }
        let digits = text
            .strip_prefix("decimal(")
            .and_then(|rest| rest.strip_suffix(')'))
            .and_then(|digits| digits.split_once(','))
            .ok_or(TypeProblem::Unknown)?;
        let number = |digits: &str| digits.parse::<u8>().map_err(|_| TypeProblem::Range);
        let (precision, scale) = (number(digits.0)?, number(digits.1)?);
        if (1..=DECIMAL_PRECISION_MAX).contains(&precision) && scale <= precision {
            Ok(Self::Decimal { precision, scale })
        } else {
            Err(TypeProblem::Range)
        }
    }

    /// Parses a type such as `decimal(4,1)`; `None` for any other string.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::parse(text).ok()
    }

    /// Returns the column type of a key attribute that is not declared.
    fn of_key(attribute_type: AttributeType) -> Self {
        match attribute_type {
            AttributeType::N => Self::Bigint,
            AttributeType::B => Self::Binary,
            _ => Self::String,
        }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String => f.write_str("string"),
            Self::Bigint => f.write_str("bigint"),
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::Boolean => f.write_str("boolean"),
            Self::Binary => f.write_str("binary"),
            Self::Json => f.write_str("json"),
        }
    }
}

impl Path {
    fn parse(text: &str) -> Option<Self> {
        let names: Vec<String> = text.split('.').map(str::to_owned).collect();
        names.iter().all(|name| !name.is_empty()).then_some(Self(names))
    }

    /// Returns the path of a top-level attribute.
    pub(super) fn top_level(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }

    /// Returns the names of the path in lower snake case, joined by `_`. Athena and Glue ignore
    /// case, so column names must differ in more than case.
    pub(super) fn column_name(&self) -> String {
        let mut name = String::new();
        for part in &self.0 {
            if !name.is_empty() {
                name.push('_');
            }
            let mut after_lower = false;
            for character in part.chars() {
                if character.is_uppercase() && after_lower {
                    name.push('_');
                }
                after_lower = character.is_lowercase() || character.is_numeric();
                if character.is_alphanumeric() {
                    name.extend(character.to_lowercase());
                } else {
                    name.push('_');
                }
            }
        }
        name
    }

    /// Returns the names, outermost first.
    pub(super) fn names(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

impl Schema {
    /// Returns the columns of a table whose items have these keys. A declared key attribute takes
    /// its type from the declaration. If another column already has the name of a key column, the
    /// key column gets the suffix `_key`.
    #[must_use]
    pub fn of(keys: &ItemView<'_>, declared: &[Column]) -> Self {
        let mut taken: BTreeSet<String> = declared.iter().map(|c| c.name.clone()).collect();
        let mut columns = Vec::with_capacity(keys.len() + declared.len());
        for (attribute, value) in keys.iter() {
            let path = Path::top_level(attribute);
            if let Some(column) = declared.iter().find(|column| column.path == path) {
                columns.push(column.clone());
                continue;
            }
            let mut name = path.column_name();
            while is_reserved(&name) || !taken.insert(name.clone()) {
                name.push_str("_key");
            }
            let column_type = ColumnType::of_key(value.attribute_type());
            columns.push(Column { name, path, column_type });
        }
        let rest: Vec<Column> =
            declared.iter().filter(|column| !columns.contains(column)).cloned().collect();
        columns.extend(rest);
        Self { base: columns.len(), columns }
    }

    /// Returns a schema with the columns of this schema, followed by the discovered columns sorted
    /// by name.
    pub(super) fn with_discovered(&self, discovered: Vec<Column>) -> Self {
        let mut columns = self.columns.clone();
        columns.extend(discovered);
        Self { columns, base: self.base }
    }

    /// Returns the columns, in order.
    pub fn columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter()
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Returns whether there are no columns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the common columns of rows in one file. Equal names must have equal types. If two
    /// attributes have the same column name, the path that sorts first is kept. Returns `None` if
    /// the key columns or declared columns differ, or if there would be more than `max` columns.
    #[must_use]
    pub fn union(&self, other: &Self, max: usize) -> Option<Self> {
        let (base, found) = self.columns.split_at_checked(self.base)?;
        let (other_base, other_found) = other.columns.split_at_checked(other.base)?;
        if base != other_base {
            return None;
        }
        let mut all: BTreeMap<&str, &Column> = BTreeMap::new();
        for column in found.iter().chain(other_found) {
            let known = all.entry(&column.name).or_insert(column);
            *known = (*known).min(column);
        }
        let columns = base.iter().chain(all.into_values()).cloned().collect::<Vec<_>>();
        (columns.len() <= max).then_some(Self { columns, base: self.base })
    }

    /// Returns the position in `row` of each column of this schema; `None` for a column that `row`
    /// lacks.
    #[must_use]
    pub fn places_in(&self, row: &Self) -> Vec<Option<usize>> {
        let place = |column: &Column| row.columns.iter().position(|c| c.name == column.name);
        self.columns.iter().map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    #[test]
    fn an_invalid_declaration_is_named() {
        let columns =
            parse_columns(" info.rating : decimal( 4 , 1 ),title:String, userID:json,").unwrap();
        let texts: Vec<String> =
            columns.iter().map(|c| format!("{}={}:{}", c.name, c.path, c.column_type)).collect();
        assert_eq!(
            texts,
            ["info_rating=info.rating:decimal(4,1)", "title=title:string", "user_id=userID:json"]
        );
        assert_eq!(parse_columns(""), Ok(Vec::new()));
        for (text, discover, columns) in
            [("*", true, 0), ("", false, 0), ("a:json, *", true, 1), ("*,a:decimal(4,1),", true, 1)]
        {
            let declaration = Declaration::parse(text).unwrap();
            assert_eq!((declaration.discover, declaration.columns.len()), (discover, columns));
        }
        assert!(Declaration::parse("*,b").is_err() && Declaration::parse("*.a").is_err());
        for (wrong, expected) in [
            ("title", "column `title` is not of the form PATH:TYPE"),
            ("title:text", "column `title:text` is not of the form PATH:TYPE"),
            ("a..b:json", "column `a..b:json` is not of the form PATH:TYPE"),
            (":json", "column `:json` is not of the form PATH:TYPE"),
            ("--:json", "column `--:json` is not of the form PATH:TYPE"),
            ("a:decimal(39,0)", "column `a:decimal(39,0)`: decimal(p,s) needs 1 <= p <= 38"),
            ("a:decimal(2,3)", "column `a:decimal(2,3)`: decimal(p,s) needs"),
            ("a:decimal(999,3)", "column `a:decimal(999,3)`: decimal(p,s) needs"),
            ("userId:json,userid:string", ""),
            (
                "userId:json,user_id:string",
                "column `user_id` would be named `user_id`, but column `userId` already has",
            ),
            (
                "a.b:json,a_b:string",
                "column `a_b` would be named `a_b`, but column `a.b` already has",
            ),
            ("_item:json", "column `_item` would be named `_item`, but the archive itself"),
            ("Table:json", "column `Table` would be named `table`, but the archive"),
            ("dt:string", "column `dt` would be named `dt`, but the archive itself"),
        ] {
            match parse_columns(wrong) {
                Err(error) => assert!(error.to_string().starts_with(expected), "{wrong}: {error}"),
                Ok(columns) => assert!(expected.is_empty(), "{wrong}: {columns:?}"),
            }
        }
    }

    #[test]
    fn key_columns_come_first_and_never_collide() {
        for (keys, declared, expected) in [
            (
                r#"{"year":{"N":"1"},"title":{"S":"a"}}"#,
                "info.x:json",
                "title:string year:bigint info_x:json",
            ),
            (r#"{"id":{"B":"AA=="}}"#, "", "id:binary"),
            (r#"{"id":{"N":"1"}}"#, "x:json,id:decimal(20,2)", "id:decimal(20,2) x:json"),
            (r#"{"ID":{"S":"1"},"id":{"S":"1"}}"#, "", "id:string id_key:string"),
            (r#"{"info_x":{"S":"1"}}"#, "info.x:json", "info_x_key:string info_x:json"),
            (r#"{"dt":{"S":"1"},"table":{"S":"1"}}"#, "", "dt_key:string table_key:string"),
        ] {
            let schema = Schema::of(
                &ItemView::of(&item_from_str(keys).unwrap()),
                &parse_columns(declared).unwrap(),
            );
            let texts: Vec<String> =
                schema.columns().map(|c| format!("{}:{}", c.name, c.column_type)).collect();
            assert_eq!(texts.join(" "), expected, "{keys} {declared}");
        }
    }
}
