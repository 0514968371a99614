//! The command-line flags of the tool.

use std::path::PathBuf;

use clap::Parser;

use crate::ceiling::Ceiling;
use crate::client::Endpoint;
use crate::workload::{Follower, Operation};

/// Measure a DynamoDB endpoint, or the upper bounds of this machine without one
#[derive(Clone, Debug, Parser)]
#[command(after_help = "Examples:\n  \
    load-generator --endpoint http://127.0.0.1:8000 --server-pid 4711\n  \
    load-generator --endpoint http://127.0.0.1:8000 --operations put,batch --with stream,index\n  \
    load-generator --ceiling                      the upper bounds of this machine without a store\n  \
    load-generator --ceiling --endpoint URL       both, and the store's puts in percent of each bound\n\n\
    The results are tab-separated values on standard output. The tables load-… are created, filled, \
    and deleted at the end.")]
pub(crate) struct Arguments {
    /// Measure this endpoint: plain HTTP, as http://HOST:PORT
    #[arg(long, value_name = "URL", required_unless_present_any = ["ceiling", "serve_ceiling"])]
    pub(crate) endpoint: Option<Endpoint>,
    /// Operations to measure
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,…", default_values = ["put", "get", "update", "query", "batch"])]
    pub(crate) operations: Vec<Operation>,
    /// Features of the tables that add to the cost of writes
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,…")]
    pub(crate) with: Vec<Follower>,
    /// Numbers of concurrent connections, one measurement each
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_values = ["1", "16", "64"], value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) connections: Vec<u32>,
    /// Duration of a measurement in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) duration: u64,
    /// Seconds of load before each measurement that do not count
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub(crate) warm_up: u64,
    /// Number of single items in the table
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(25..=100_000_000))]
    pub(crate) items: u64,
    /// Number of partitions of 50 items for the queries
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) partitions: u64,
    /// Process ids of the server, whose CPU time and memory are read (Linux)
    #[arg(long = "server-pid", value_name = "PID", value_delimiter = ',')]
    pub(crate) server_pids: Vec<u32>,
    /// Also measure an HTTP echo and a group commit without a store, the upper bounds of any store
    #[arg(long)]
    pub(crate) ceiling: bool,
    /// Serve a ceiling; `--ceiling` starts this process
    #[arg(long, value_enum, hide = true)]
    pub(crate) serve_ceiling: Option<Ceiling>,
    /// Folder of the ceilings' logs, on the store's disk [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
}
