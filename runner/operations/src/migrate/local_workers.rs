//! Interfaces to workers that run in this process: the program starts them, a verb watches and
//! stops them.
//!
//! The implementation uses the local Lambda runtime, on which no verb here depends.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;

use mapping::ShardId;

/// Options of local workers.
pub struct WorkerOptions<'o> {
    /// The store's endpoint.
    pub endpoint: &'o str,
    /// The name of the control table.
    pub control_table: &'o str,
    /// The tables whose streams are read.
    pub tables: Vec<String>,
    /// Number of concurrent tasks.
    pub workers: usize,
    /// The folder for checkpoints, logs and quarantined records.
    pub directory: &'o Path,
    /// The folder of the function's package.
    pub package_folder: PathBuf,
    /// Timeout of an invocation.
    pub timeout: Duration,
    /// Deliver each successful batch a second time.
    pub duplicate_deliveries: bool,
}

/// Why a table's stream is no longer read.
pub enum Problem {
    /// Its mapping has ended; the reason.
    NotFollowed(String),
    /// The stream trimmed records before they were read.
    Trimmed {
        /// The table.
        table: String,
        /// The shard.
        shard: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFollowed(why) => f.write_str(why),
            Self::Trimmed { table, shard } => write!(
                f,
                "records of the shard {shard} of `{table}` are lost: they were older than the 24 hours that a stream keeps"
            ),
        }
    }
}

/// Starts local workers.
#[async_trait]
pub trait StartWorkers: Sync {
    /// Starts workers that follow the streams of the control table and of the tables of a plan.
    ///
    /// # Errors
    /// When the function cannot be built, or a table has no stream.
    async fn start(&self, options: WorkerOptions<'_>) -> Result<Box<dyn LocalWorkers>, String>;
}

/// Running local workers.
#[async_trait]
pub trait LocalWorkers: Send + Sync {
    /// Returns why a table's stream is no longer read; `None` while all are read.
    fn problem(&self) -> Option<Problem>;

    /// Returns a shard of the control table whose records were trimmed unread. No task is lost once
    /// each open one is written again, because the table has its content.
    fn trimmed_tasks(&self) -> Option<ShardId>;

    /// Lets such a shard resume at its oldest record. A shard that has resumed is left alone.
    fn resume_after_trim(&self, shard: &ShardId);

    /// Stops after the invocations in flight; the checkpoints are on disk then.
    async fn stop(self: Box<Self>);
}
