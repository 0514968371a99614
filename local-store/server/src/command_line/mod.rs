//! The command line of the binary `local-store`: flags, start, and a clean end.
//!
//! What is wrong with a flag is said here, in one line, with what to write instead.

mod member;
mod status;

use std::env;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;

use clap::{Parser, Subcommand};

use crate::access::AccessKeys;
use crate::gate::{AllowList, BoundListener};
use crate::http::{self, Access};
use crate::store::{Config, Store};
use crate::traffic::Throughput;
use platform::descriptors::Descriptors;
use platform::standard_input;

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
    /// Where the store keeps its data; made if it is not there
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = ".local-store",
        env = "LOCAL_STORE_DATA"
    )]
    data: PathBuf,
    /// The port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8000, env = "LOCAL_STORE_PORT")]
    port: u16,
    /// The address to listen on; beyond loopback addresses only together with --access-keys
    #[arg(long, default_value = "127.0.0.1", env = "LOCAL_STORE_HOST")]
    host: IpAddr,
    /// The Region in ARNs
    #[arg(long, default_value = "us-east-1", env = "AWS_REGION")]
    region: String,
    /// The account in ARNs: twelve digits
    #[arg(long, default_value = "000000000000")]
    account: String,
    /// Take only requests that are signed with an access key of this file, which has the form of
    /// ~/.aws/credentials; without it, any signature is taken
    #[arg(long, value_name = "FILE", env = "LOCAL_STORE_ACCESS_KEYS")]
    access_keys: Option<PathBuf>,
    /// Keep tables apart by the account and the Region that requests are signed for: the account
    /// that --access-keys gives a key as `aws_account_id`, or an access key of twelve digits
    #[arg(long, env = "LOCAL_STORE_SEPARATE_TABLES")]
    separate_tables: bool,
    /// Accept requests for this host beside localhost and the address that they come to; may be
    /// repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Accept requests of pages of this origin, such as http://localhost:3000; may be repeated
    #[arg(long, value_name = "ORIGIN", visible_alias = "cors-origin")]
    allow_origin: Vec<String>,
    /// Nodes in this process, each with a replica and a directory of its own: 3, or 1 where
    /// nothing has to survive
    #[arg(long, default_value_t = 3, value_parser = parse_replicas, env = "LOCAL_STORE_REPLICAS")]
    replicas: u64,
    /// Arcs of a new data directory's ring, each a consensus group with a log of its own; a
    /// directory that is there keeps its number
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16), env = "LOCAL_STORE_ARCS")]
    arcs: u32,
    /// Whether requests beyond the throughput of their table are only counted, or throttled as
    /// DynamoDB throttles them
    #[arg(long, value_enum, default_value_t = Throughput::Count, env = "LOCAL_STORE_THROUGHPUT")]
    throughput: Throughput,
    /// How large an item collection may become in a table with local indexes; the store keeps it
    /// [default: as before, and 10 GiB at first]
    #[arg(long, value_name = "BYTES")]
    item_collection_bytes: Option<u64>,
    /// End when standard input ends, as it does when the program that started the store is gone
    #[arg(long)]
    end_with_stdin: bool,
    #[command(flatten)]
    member: member::Flags,
}

/// What else the binary does than to run a store.
#[derive(Debug, Subcommand)]
enum Command {
    /// Show how the nodes of a running store do: roles, progress, what was set aside
    Status(status::Flags),
}

/// Who may use the store: everybody on this machine, or the owners of access keys.
fn access(arguments: &Arguments) -> Result<Access, String> {
    let keys = arguments.access_keys.as_deref().map(AccessKeys::read).transpose()?;
    if !arguments.host.is_loopback() && keys.is_none() {
        return Err(format!(
            "refusing to listen on {} without --access-keys: everybody who reaches it could read and change everything; use a loopback address such as --host 127.0.0.1, or --access-keys FILE",
            arguments.host
        ));
    }
    let allowed = AllowList::new(&arguments.allow_host, &arguments.allow_origin)
        .map_err(|error| error.to_string())?;
    Ok(Access { keys, allowed, separate_tables: arguments.separate_tables })
}

fn parse_replicas(text: &str) -> Result<u64, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("a store has 3 replicas, or 1 where nothing has to survive".to_owned()),
    }
}

/// Carries out a command, or runs the store until it is interrupted.
///
/// # Errors
/// What is wrong and what to do about it, in one line.
pub async fn run(arguments: Arguments) -> Result<(), String> {
    if let Some(Command::Status(flags)) = arguments.command {
        return status::run(flags).await;
    }
    let access = access(&arguments)?;
    platform::private_files::begin();
    Descriptors::prepare().map_err(|error| error.to_string())?;
    let config = Config {
        directory: arguments.data,
        region: arguments.region,
        account: arguments.account,
        replicas: arguments.replicas,
        arcs: arguments.arcs,
    };
    let address = SocketAddr::new(arguments.host, arguments.port);
    let bound = match &access.keys {
        Some(keys) => BoundListener::with_keys("store", address, keys).await,
        None => BoundListener::new("store", address).await,
    };
    let bound = bound.map_err(|error| error.to_string())?;
    let on_fatal = Box::new(end_process);
    let opened = match arguments.member.member().await? {
        Some(member) => {
            Store::open_member(config, member, on_fatal, Box::new(restart_process)).await
        }
        None => Store::open(config, on_fatal).await,
    };
    let store = opened.map_err(|error| error.to_string())?;
    store.traffic().set_throughput(arguments.throughput);
    if let Some(bytes_max) = arguments.item_collection_bytes {
        let limit = partition::Command::LimitItemCollections { bytes_max };
        store.submit(vec![limit]).await.map_err(|error| error.to_string())?;
    }
    tracing::info!("listening on http://{}", bound.address());
    http::serve_with(bound, store, access, end(arguments.end_with_stdin)).await;
    Ok(())
}

/// Resolves when the process is asked to end, or with standard input where that is asked for.
async fn end(with_stdin: bool) {
    tokio::select! {
        () = interrupted() => {}
        () = standard_input::ended(), if with_stdin => {}
    }
}

/// Resolves when the process is asked to end: Ctrl-C or SIGTERM.
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

/// Runs the program anew in the place of this process, with the same arguments.
fn restart_process(reason: &str) {
    tracing::warn!(reason, "this node is damaged: its process starts again to have it filled");
    let program = env::current_exe();
    let error = match program {
        Ok(program) => process::Command::new(program).args(env::args_os().skip(1)).exec(),
        Err(error) => error,
    };
    end_process(&format!("this node is damaged, and its program cannot be started again: {error}"));
}

/// Ends the process after the disk failed: what was not acknowledged may or may not be on disk, and
/// only a restart finds out.
pub fn end_process(reason: &str) {
    tracing::error!(reason, "the store cannot go on; restart it when the disk is well");
    process::exit(1);
}
