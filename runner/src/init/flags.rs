//! The flags of each kind of project.
//!
//! `kinds` has the files of each kind.

use std::path::PathBuf;

use clap::Args;
use model::KeyAttributeType;

use super::failure::InitError;
use super::kinds::{Copies, Language};
use super::names::{attribute_name, table_name};
use super::table::{KeyAttribute, Table};
use client::endpoint;

/// The TTL attribute of an archive's table, if the table does not exist yet.
const TTL_ATTRIBUTE: &str = "expires_at";

/// The attribute that holds the votes of a slot, named as in the template of counters.
const VOTES_ATTRIBUTE: &str = "votes";

/// The location of the project.
#[derive(Clone, Debug, Args)]
pub(super) struct Place {
    /// The folder of the project; created if it does not exist
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub(super) folder: PathBuf,
}

/// The flags that name an existing table, from which the key and the TTL attribute are taken.
#[derive(Clone, Debug, Args)]
struct LiveTable {
    /// Take the name, key and TTL attribute from this existing table
    #[arg(long, value_name = "TABLE", value_parser = table_name)]
    from_table: Option<String>,
    /// DynamoDB endpoint of that table [default: AWS_ENDPOINT_URL_DYNAMODB, or the `weir up` of this
    /// folder]
    #[arg(long, value_name = "URL", requires = "from_table")]
    endpoint: Option<String>,
    /// Region of that table, if it is on AWS
    #[arg(long, requires = "from_table", conflicts_with = "endpoint")]
    region: Option<String>,
}

impl LiveTable {
    /// Describes the existing table; `None` without `--from-table`.
    async fn described(&self) -> Result<Option<Table>, InitError> {
        let Some(table) = &self.from_table else { return Ok(None) };
        let of_region = |region: &String| format!("https://dynamodb.{region}.amazonaws.com");
        let flag = self.endpoint.clone().or_else(|| self.region.as_ref().map(of_region));
        let url = endpoint::find_to_read(flag.as_deref())
            .map_err(|failure| InitError::Table(failure.to_string()))?;
        Table::describe(table, &url).await.map(Some)
    }
}

/// The flags for the key of a table that does not exist yet.
#[derive(Clone, Debug, Args)]
struct KeyFlags {
    /// Partition key of the table, as NAME:TYPE with the type S, N or B
    #[arg(long, value_name = "NAME:TYPE", default_value = "id:S", conflicts_with = "from_table")]
    key: KeyAttribute,
    /// Sort key of the table, as NAME:TYPE
    #[arg(long, value_name = "NAME:TYPE", conflicts_with = "from_table")]
    sort: Option<KeyAttribute>,
}

/// The flags of a project for one table, which may have a TTL attribute.
#[derive(Clone, Debug, Args)]
pub(super) struct TtlTableFlags {
    #[command(flatten)]
    pub(super) place: Place,
    /// The table
    #[arg(long, value_name = "NAME", value_parser = table_name, default_value = "items", conflicts_with = "from_table")]
    table: String,
    #[command(flatten)]
    key: KeyFlags,
    /// TTL attribute of the table [default: the TTL attribute of the --from-table table;
    /// `expires_at` for an archive]
    #[arg(long, value_name = "ATTRIBUTE", value_parser = attribute_name)]
    ttl: Option<String>,
    #[command(flatten)]
    live: LiveTable,
}

impl TtlTableFlags {
    pub(super) async fn table(&self) -> Result<Table, InitError> {
        let of_flags =
            || Table::new(&self.table, self.key.key.clone(), self.key.sort.clone(), None);
        let table = match self.live.described().await? {
            Some(table) => table,
            None => of_flags()?,
        };
        let ttl = self.ttl.clone().or_else(|| table.ttl.clone());
        Ok(Table { ttl, ..table })
    }

    /// Returns the table, which must have a TTL attribute.
    pub(super) async fn table_that_expires(&self) -> Result<Table, InitError> {
        let table = self.table().await?;
        match (&table.ttl, &self.live.from_table) {
            (None, Some(name)) => Err(InitError::Table(format!(
                "TTL of table `{name}` is disabled, so no item would be archived; name a TTL attribute with --ttl"
            ))),
            (None, None) => Ok(Table { ttl: Some(TTL_ATTRIBUTE.to_owned()), ..table }),
            (Some(_), _) => Ok(table),
        }
    }
}

/// The flags of counters.
#[derive(Clone, Debug, Args)]
pub(super) struct CountersFlags {
    #[command(flatten)]
    pub(super) place: Place,
    /// The table of the slots
    #[arg(long, value_name = "NAME", value_parser = table_name, default_value = "votes", conflicts_with = "from_table")]
    table: String,
    /// Partition key of the slots, a string attribute
    #[arg(long, value_name = "ATTRIBUTE", value_parser = attribute_name, default_value = "slot", conflicts_with = "from_table")]
    key: String,
    /// The table of the totals
    #[arg(long, value_name = "NAME", value_parser = table_name, default_value = "totals")]
    pub(super) totals: String,
    /// Slots of each counter
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) slots: u32,
    #[command(flatten)]
    live: LiveTable,
}

impl CountersFlags {
    pub(super) async fn table(&self) -> Result<Table, InitError> {
        let key = KeyAttribute { name: self.key.clone(), kind: KeyAttributeType::S };
        let table = match self.live.described().await? {
            Some(table) => table,
            None => Table::new(&self.table, key, None, None)?,
        };
        if table.name == self.totals {
            let text = format!(
                "table `{}` cannot hold both slots and totals: name a different table with --totals",
                table.name
            );
            return Err(InitError::Table(text));
        }
        if table.key.name == VOTES_ATTRIBUTE {
            return Err(InitError::Table(format!(
                "`{VOTES_ATTRIBUTE}` cannot be the key of table `{}`: slots count their votes in that attribute; use a table with a different key",
                table.name
            )));
        }
        if table.key.kind == KeyAttributeType::S && table.sort.is_none() {
            return Ok(table);
        }
        Err(InitError::Table(format!(
            "table `{}` cannot hold slots: its key must be one string attribute, without a sort key",
            table.name
        )))
    }
}

/// The flags of fan-out: copies that are kept equal to their origins.
#[derive(Clone, Debug, Args)]
pub(super) struct FanOutFlags {
    #[command(flatten)]
    pub(super) place: Place,
    /// The table of the origins
    #[arg(long, value_name = "NAME", value_parser = table_name, default_value = "products", conflicts_with = "from_table")]
    table: String,
    /// Partition key of the origins, as NAME:TYPE; origins have no sort key
    #[arg(long, value_name = "NAME:TYPE", default_value = "id:S", conflicts_with = "from_table")]
    key: KeyAttribute,
    /// The table of the copies
    #[arg(long, value_name = "NAME", value_parser = table_name, default_value = "order-lines")]
    copies: String,
    /// The partition key of the copies, as NAME:TYPE
    #[arg(long, value_name = "NAME:TYPE", default_value = "id:S")]
    copies_key: KeyAttribute,
    /// The sort key of the copies
    #[arg(long, value_name = "NAME:TYPE")]
    copies_sort: Option<KeyAttribute>,
    /// The attribute of a copy that holds the key of its origin
    #[arg(long, value_name = "ATTRIBUTE", value_parser = attribute_name, default_value = "origin_id")]
    reference: String,
    /// The attribute of an origin that its copies contain
    #[arg(long, value_name = "ATTRIBUTE", value_parser = attribute_name, default_value = "name")]
    attribute: String,
    #[command(flatten)]
    live: LiveTable,
}

impl FanOutFlags {
    pub(super) async fn table(&self) -> Result<Table, InitError> {
        let table = match self.live.described().await? {
            Some(table) => table,
            None => Table::new(&self.table, self.key.clone(), None, None)?,
        };
        if table.sort.is_none() {
            return Ok(table);
        }
        Err(InitError::Table(format!(
            "table `{}` cannot hold origins: it has a sort key, and an origin has only a partition key",
            table.name
        )))
    }

    pub(super) fn copies(&self) -> Result<Copies, InitError> {
        let (key, sort) = (self.copies_key.clone(), self.copies_sort.clone());
        Ok(Copies {
            table: Table::new(&self.copies, key, sort, None)?,
            reference: self.reference.clone(),
            attribute: self.attribute.clone(),
        })
    }
}

/// The flags of a migration.
#[derive(Clone, Debug, Args)]
pub(super) struct MigrationFlags {
    #[command(flatten)]
    of_table: TtlTableFlags,
    /// Target table of the migration [default: TABLE-v2]
    #[arg(long, value_name = "NAME", value_parser = table_name)]
    target: Option<String>,
}

impl MigrationFlags {
    pub(super) fn folder(&self) -> PathBuf {
        self.of_table.place.folder.clone()
    }

    pub(super) async fn table(&self) -> Result<Table, InitError> {
        self.of_table.table().await
    }

    /// Returns the name of the migration's target table.
    pub(super) fn target(&self, table: &Table) -> Result<String, InitError> {
        match &self.target {
            Some(target) if *target == table.name => Err(InitError::Table(format!(
                "table `{target}` cannot be both source and target: name a different table with --target"
            ))),
            Some(target) => Ok(target.clone()),
            None => table.derived("-v2"),
        }
    }
}

/// The flags of the user's own function.
#[derive(Clone, Debug, Args)]
pub(super) struct FunctionFlags {
    #[command(flatten)]
    of_table: TtlTableFlags,
    /// The language of the function
    #[arg(long, value_enum, default_value_t = Language::Python)]
    pub(super) language: Language,
}

impl FunctionFlags {
    pub(super) fn folder(&self) -> PathBuf {
        self.of_table.place.folder.clone()
    }

    pub(super) async fn table(&self) -> Result<Table, InitError> {
        self.of_table.table().await
    }
}
