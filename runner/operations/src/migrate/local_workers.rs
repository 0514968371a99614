//! Interfaces to workers that run in this process. A subcommand starts, watches and stops them.
//!
//! The implementation is in the program `weir`, because it uses the local Lambda runtime, on which
//! this crate does not depend.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;

use client::failure::Result;
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
    /// The folder of the Rust package of the function `migration`.
    pub package_folder: PathBuf,
    /// Timeout of an invocation.
    pub timeout: Duration,
    /// Deliver each successful batch a second time.
    pub duplicate_deliveries: bool,
}

/// The reason why the stream of a table is no longer read.
pub enum Problem {
    /// The event source mapping of the stream has stopped. The value is the reason.
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
                "records of the shard {shard} of `{table}` are lost: they were older than the 24 hours for which a stream keeps records"
            ),
        }
    }
}

/// An interface for starting workers in this process.
#[async_trait]
pub trait StartWorkers: Sync {
    /// Starts workers that read the streams of the control table and of the tables of a plan.
    ///
    /// # Errors
    /// When the function `migration` cannot be built, or a table has no stream.
    async fn start(&self, options: WorkerOptions<'_>) -> Result<Box<dyn LocalWorkers>>;
}

/// Workers that run in this process.
#[async_trait]
pub trait LocalWorkers: Send + Sync {
    /// Returns why the stream of a table is no longer read; `None` while all streams are read.
    fn problem(&self) -> Option<Problem>;

    /// Returns a shard of the control table's stream whose records were trimmed before they were
    /// read. The table still has all tasks. The caller has to write each open task again, so that
    /// the stream has a new record of the task.
    fn trimmed_tasks(&self) -> Option<ShardId>;

    /// Resumes the read of a shard that [`Self::trimmed_tasks`] returned, at the oldest record of
    /// the shard. Has no effect if the read has already resumed.
    fn resume_after_trim(&self, shard: &ShardId);

    /// Stops the workers. Returns when the invocations in flight have ended and their checkpoints
    /// are on disk.
    async fn stop(self: Box<Self>);
}
