//! The command line of the binary `local-store`: flags, start and orderly shutdown.
//!
//! An error message about a flag is one line, which includes what to write instead.

mod columns;
mod member;
mod ring;
pub mod status;

use std::env;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;

use clap::{Parser, Subcommand};

use platform::descriptors::Descriptors;
use platform::standard_input;
use server::access::AccessKeys;
use server::fatal::{Fatal, end_process, fatal};
use server::gate::{AllowList, BoundListener};
use server::http::{self, Access};
use server::store::{Config, Store};
use server::traffic::Throughput;

/// A replicated partition store that speaks DynamoDB's protocol.
#[derive(Debug, Parser)]
#[command(
    name = "local-store",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  local-store\n  local-store --data ./data --port 8000\n  local-store --node 1 --peer 1=127.0.0.1:9001 --peer 2=127.0.0.1:9002 --peer 3=127.0.0.1:9003 --data ./data-1 --port 8001\n  aws dynamodb list-tables --endpoint-url http://127.0.0.1:8000"
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Directory for the store's data, created if missing
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = ".local-store",
        env = "LOCAL_STORE_DATA"
    )]
    data: PathBuf,
    /// Port to listen on; 0 picks a free one
    #[arg(long, default_value_t = 8000, env = "LOCAL_STORE_PORT")]
    port: u16,
    /// Address to listen on; an address that is not a loopback address requires --access-keys
    #[arg(long, default_value = "127.0.0.1", env = "LOCAL_STORE_HOST")]
    host: IpAddr,
    /// Region in ARNs
    #[arg(long, default_value = "us-east-1", env = "AWS_REGION")]
    region: String,
    /// Account in ARNs, twelve digits
    #[arg(long, default_value = "000000000000")]
    account: String,
    /// Accept only requests that are signed with an access key of this file, which has the format of
    /// ~/.aws/credentials; without it, every request is accepted, signed or not
    #[arg(long, value_name = "FILE", env = "LOCAL_STORE_ACCESS_KEYS")]
    access_keys: Option<PathBuf>,
    /// Keep separate tables for each account and Region of signed requests; the account is the
    /// `aws_account_id` of the key in --access-keys, or the key itself if it has twelve digits
    #[arg(long, env = "LOCAL_STORE_SEPARATE_TABLES")]
    separate_tables: bool,
    /// Accept requests whose `Host` is this name, in addition to localhost and the store's address;
    /// repeatable
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Accept requests from web pages of this origin, such as http://localhost:3000; repeatable
    #[arg(long, value_name = "ORIGIN", visible_alias = "cors-origin")]
    allow_origin: Vec<String>,
    /// Number of nodes in this process, each with a replica and a directory: 3, or 1 for no
    /// replication
    #[arg(long, default_value_t = 3, value_parser = parse_replicas, env = "LOCAL_STORE_REPLICAS")]
    replicas: u64,
    /// Number of arcs in the ring of a new data directory, each a consensus group with its own log;
    /// the number of an existing directory does not change [default: 1, or 24 with more than three nodes]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=128), env = "LOCAL_STORE_ARCS")]
    arcs: Option<u32>,
    /// Handling of requests that exceed the throughput of their table: only count them, or throttle them
    /// as DynamoDB does
    #[arg(long, value_enum, default_value_t = Throughput::Count, env = "LOCAL_STORE_THROUGHPUT")]
    throughput: Throughput,
    /// Maximum size of an item collection in a table with local indexes, stored in the data directory
    /// [default: the stored value, initially 10 GiB]
    #[arg(long, value_name = "BYTES")]
    item_collection_bytes: Option<u64>,
    /// Stop when standard input ends, which happens when the program that started the store exits
    #[arg(long)]
    end_with_stdin: bool,
    #[command(flatten)]
    member: member::Flags,
}

/// The subcommands. Without a subcommand, the program runs a store.
#[derive(Debug, Subcommand)]
enum Command {
    /// Show the state of the nodes of a running store: roles, progress, and set-aside directories
    Status(status::Flags),
    /// Let a node leave a running store: its arcs move to the other nodes, and then its process can end
    Leave(status::LeaveFlags),
}

/// Returns the access rules from the flags: requests from this machine, or requests signed with an
/// access key.
fn access(arguments: &Arguments) -> Result<Access, Fatal> {
    let keys = arguments.access_keys.as_deref().map(AccessKeys::read).transpose()?;
    if !arguments.host.is_loopback() && keys.is_none() {
        return Err(fatal!(
            "refusing to listen on {} without --access-keys: anyone who can reach it could read and change everything; use a loopback address such as --host 127.0.0.1, or --access-keys FILE",
            arguments.host
        ));
    }
    let allowed =
        AllowList::new(&arguments.allow_host, &arguments.allow_origin).map_err(Fatal::new)?;
    Ok(Access { keys, allowed, separate_tables: arguments.separate_tables })
}

fn parse_replicas(text: &str) -> Result<u64, Fatal> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err(fatal!("must be 3, or 1 for no replication")),
    }
}

/// Executes a subcommand, or runs the store until the process is interrupted.
///
/// # Errors
/// A message of one line: the error and what to do about it.
pub async fn run(arguments: Arguments) -> Result<(), Fatal> {
    match arguments.command {
        Some(Command::Status(flags)) => return status::run(flags).await,
        Some(Command::Leave(flags)) => return status::leave(flags).await,
        None => {}
    }
    let access = access(&arguments)?;
    platform::private_files::begin();
    Descriptors::prepare().map_err(Fatal::new)?;
    let config = Config {
        directory: arguments.data,
        region: arguments.region,
        account: arguments.account,
        replicas: arguments.replicas,
        arcs: arguments.arcs.unwrap_or_else(|| arguments.member.default_arcs()),
    };
    let address = SocketAddr::new(arguments.host, arguments.port);
    let bound = match &access.keys {
        Some(keys) => BoundListener::with_keys("store", address, keys).await,
        None => BoundListener::new("store", address).await,
    };
    let bound = bound.map_err(Fatal::new)?;
    let on_fatal = Box::new(end_process);
    let opened = match arguments.member.member().await? {
        Some(member) => {
            Store::open_member(config, member, on_fatal, Box::new(restart_process)).await
        }
        None => Store::open(config, on_fatal).await,
    };
    let store = opened.map_err(Fatal::new)?;
    if let Some(line) = unused_arcs(arguments.arcs.unwrap_or(1), store.arcs().count()) {
        tracing::warn!("{line}");
    }
    store.traffic().set_throughput(arguments.throughput);
    if let Some(bytes_max) = arguments.item_collection_bytes {
        let limit = partition::Command::LimitItemCollections { bytes_max };
        store.submit(vec![limit]).await.map_err(Fatal::new)?;
    }
    tracing::info!("listening on http://{}", bound.address());
    http::serve_with(bound, store, access, end(arguments.end_with_stdin)).await;
    Ok(())
}

/// Returns a warning if `--arcs` has no effect because the data directory has another number of arcs.
/// Returns `None` for `--arcs 1`, because 1 is the default and may not have been requested.
fn unused_arcs(asked: u32, found: usize) -> Option<String> {
    let is_unused = asked > 1 && usize::try_from(asked) != Ok(found);
    is_unused.then(|| {
        format!("--arcs {asked} has no effect: the existing data directory keeps its {found} arcs")
    })
}

/// Resolves on Ctrl-C or SIGTERM. If `with_stdin` is true, it also resolves at the end of standard input.
async fn end(with_stdin: bool) {
    tokio::select! {
        () = interrupted() => {}
        () = standard_input::ended(), if with_stdin => {}
    }
}

/// Resolves on Ctrl-C or SIGTERM.
pub async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                terminate.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}

/// Replaces this process with a new process of the same program and with the same arguments.
fn restart_process(reason: &str) {
    tracing::warn!(reason, "this node is damaged; restarting the process to rebuild the node");
    let program = env::current_exe();
    let error = match program {
        Ok(program) => process::Command::new(program).args(env::args_os().skip(1)).exec(),
        Err(error) => error,
    };
    end_process(&format!("this node is damaged, and the process cannot restart: {error}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arcs_that_a_directory_does_not_have_are_reported() {
        for (asked, found, is_unused) in [(1, 1, false), (1, 3, false), (3, 3, false), (4, 1, true)]
        {
            assert_eq!(unused_arcs(asked, found).is_some(), is_unused, "{asked} {found}");
        }
    }
}
