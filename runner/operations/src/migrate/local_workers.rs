//! What a migration needs of workers that run in this process: the program starts them, a verb watches
//! and stops them.
//!
//! It has no worker itself: they run on the local Lambda runtime, which no verb here depends on.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;

use mapping::ShardId;

/// How to run local workers.
pub struct WorkerOptions<'o> {
    /// The store's endpoint.
    pub endpoint: &'o str,
    /// The name of the control table.
    pub control_table: &'o str,
    /// The tables whose streams are followed.
    pub tables: Vec<String>,
    /// Tasks that are worked on at the same time.
    pub workers: usize,
    /// Where checkpoints, logs and quarantined records are kept.
    pub directory: &'o Path,
    /// The folder of the function's package.
    pub package_folder: PathBuf,
    /// When an invocation is ended.
    pub timeout: Duration,
    /// Deliver each batch that succeeded once more.
    pub duplicate_deliveries: bool,
}

/// What keeps a table from being followed.
pub enum Problem {
    /// Its mapping has ended; why, for a person.
    NotFollowed(String),
    /// Nobody read records for so long that the stream no longer has them.
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

/// Local workers that run.
#[async_trait]
pub trait LocalWorkers: Send + Sync {
    /// Returns what keeps a table from being followed; `None` while all of them are.
    fn problem(&self) -> Option<Problem>;

    /// Returns a shard of the control table whose records were trimmed unread. Nothing is lost by it
    /// once each open task has a new record: what the records said is in the table.
    fn trimmed_tasks(&self) -> Option<ShardId>;

    /// Lets such a shard resume at its oldest record. A shard that has resumed is left alone.
    fn resume_after_trim(&self, shard: &ShardId);

    /// Stops after the invocations in flight; the checkpoints are on disk then.
    async fn stop(self: Box<Self>);
}
