//! How a verb of `weir archive` is told its table: as a word, or with `--table`.
//!
//! Which tables there are is not known here.

use clap::Args;

/// The table, where it need not be named.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct TableArgument {
    /// The table; not needed if there is only one
    #[arg(id = "table_word", value_name = "TABLE")]
    word: Option<String>,
    /// The same as TABLE
    #[arg(id = "table", long, value_name = "TABLE", conflicts_with = "table_word")]
    flag: Option<String>,
}

impl TableArgument {
    /// Its name, if it was given.
    pub(super) fn name(&self) -> Option<&str> {
        self.word.as_deref().or(self.flag.as_deref())
    }
}

/// The table, where without it all of them are taken.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct OneOfAll {
    /// Only this table
    #[arg(id = "table_word", value_name = "TABLE")]
    word: Option<String>,
    /// The same as TABLE
    #[arg(id = "table", long, value_name = "TABLE", conflicts_with = "table_word")]
    flag: Option<String>,
}

impl OneOfAll {
    #[cfg(test)]
    pub(super) fn of(name: Option<&str>) -> Self {
        Self { word: name.map(str::to_owned), flag: None }
    }

    /// Its name, if it was given.
    pub(super) fn name(&self) -> Option<&str> {
        self.word.as_deref().or(self.flag.as_deref())
    }
}

/// The table, where nothing is done without its name.
#[derive(Clone, Debug, Args)]
pub(super) struct NamedTable {
    /// The table
    #[arg(id = "table_word", value_name = "TABLE", required_unless_present = "table")]
    word: Option<String>,
    /// The same as TABLE
    #[arg(id = "table", long, value_name = "TABLE", conflicts_with = "table_word")]
    flag: Option<String>,
}

impl NamedTable {
    #[cfg(test)]
    pub(super) fn of(name: &str) -> Self {
        Self { word: Some(name.to_owned()), flag: None }
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        // One of both is there, or the command line was refused.
        self.word.as_deref().or(self.flag.as_deref()).unwrap_or_default()
    }
}
