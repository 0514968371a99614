//! The table argument of the subcommands of `weir archive`: a positional argument, or `--table`.
//!
//! The module does not check that the table exists.

use clap::Args;

/// A table argument that may be omitted.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct TableArgument {
    /// The table; optional if there is only one table
    #[arg(id = "table_word", value_name = "TABLE")]
    word: Option<String>,
    /// Same as TABLE
    #[arg(id = "table", long, value_name = "TABLE", conflicts_with = "table_word")]
    flag: Option<String>,
}

impl TableArgument {
    /// Returns the argument for a table.
    pub(super) fn of(name: &str) -> Self {
        Self { word: Some(name.to_owned()), flag: None }
    }

    /// Returns the table's name, if given.
    pub(super) fn name(&self) -> Option<&str> {
        self.word.as_deref().or(self.flag.as_deref())
    }
}

/// A table argument that restricts the subcommand to one table; without it, the subcommand uses all
/// tables.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct OneOfAll {
    /// Only this table
    #[arg(id = "table_word", value_name = "TABLE")]
    word: Option<String>,
    /// Same as TABLE
    #[arg(id = "table", long, value_name = "TABLE", conflicts_with = "table_word")]
    flag: Option<String>,
}

impl OneOfAll {
    #[cfg(test)]
    pub(super) fn of(name: Option<&str>) -> Self {
        Self { word: name.map(str::to_owned), flag: None }
    }

    /// Returns the table's name, if given.
    pub(super) fn name(&self) -> Option<&str> {
        self.word.as_deref().or(self.flag.as_deref())
    }
}

/// A required table argument, as `TABLE` or `--table`.
#[derive(Clone, Debug, Args)]
pub(super) struct NamedTable {
    /// The table
    #[arg(id = "table_word", value_name = "TABLE", required_unless_present = "table")]
    word: Option<String>,
    /// Same as TABLE
    #[arg(id = "table", long, value_name = "TABLE", conflicts_with = "table_word")]
    flag: Option<String>,
}

impl NamedTable {
    /// Returns the argument for a table.
    pub(super) fn of(name: &str) -> Self {
        Self { word: Some(name.to_owned()), flag: None }
    }

    /// Returns the table's name.
    pub(super) fn name(&self) -> &str {
        // Clap has checked that the positional argument or the flag is present.
        self.word.as_deref().or(self.flag.as_deref()).unwrap_or_default()
    }
}
