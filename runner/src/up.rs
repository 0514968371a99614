//! `weir up`: the template, running until Ctrl-C, on data that is still there the next time.
//!
//! What it runs is in `system`; this is only the beginning and the end.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::endpoint::{RUNNING_FILE, Running};
use crate::output;
use crate::status;
use crate::system::{Options, System};
use crate::template::Stack;

/// Where the Invoke API listens if nothing else is said.
pub(crate) const INVOKE_PORT: u16 = 9001;

/// How to run the template.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir up\n  weir up --port 8001 --s3-port 9091 --directory .weir/other"
)]
pub struct UpArguments {
    /// The port of the store; 0 takes a free one
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// The port of the S3 endpoint; 0 takes a free one
    #[arg(long, default_value_t = 9090)]
    pub s3_port: u16,
    /// The port of Lambda's Invoke API; 0 takes a free one [default: 9001, or a free one with --port 0]
    #[arg(long)]
    pub invoke_port: Option<u16>,
    /// Where the data is kept
    #[arg(long, value_name = "DIRECTORY", default_value = ".weir/up")]
    pub directory: PathBuf,
    /// Deliver each batch that succeeded a second time, as Lambda may
    #[arg(long)]
    pub duplicate_deliveries: bool,
    /// Make faults around every mapping, decided by this seed: duplicates, late and split batches,
    /// crashes before the checkpoint, expired iterators, slow and throttled functions
    #[arg(long, value_name = "SEED")]
    pub chaos: Option<u64>,
}

/// Runs until the process is asked to end.
///
/// # Errors
/// What cannot be started and what to do about it.
pub async fn run(
    arguments: &UpArguments,
    stack: Stack,
    template_folder: &Path,
) -> Result<(), String> {
    let options = Options {
        directory: arguments.directory.clone(),
        store_port: arguments.port,
        object_store_port: arguments.s3_port,
        invoke_port: arguments.invoke_port.unwrap_or(if arguments.port == 0 {
            0
        } else {
            INVOKE_PORT
        }),
        duplicate_deliveries: arguments.duplicate_deliveries,
        chaos: arguments.chaos,
        template_folder: template_folder.to_owned(),
    };
    let system = System::start(stack, options).await?;
    write_running(&system, &arguments.directory)?;
    tracing::info!("running; Ctrl-C ends it. In another terminal:");
    tracing::info!(
        "  export AWS_ENDPOINT_URL_DYNAMODB={} AWS_ENDPOINT_URL_S3={}",
        system.dynamodb_url(),
        system.s3_url()
    );
    tracing::info!(
        "  export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_REGION={}",
        system.stack().region
    );
    output::next(&[
        ("weir streams explain --last", "why a function did, or did not, run"),
        ("weir status", "how far each mapping has got"),
        ("weir clock advance 26h", "let a day pass"),
    ]);
    tokio::select! {
        () = server::command_line::interrupted() => {}
        () = status::keep(&system, &arguments.directory) => {}
    }
    tracing::info!("ending");
    system.shutdown().await;
    // The file may be gone or another run's by now; both are fine.
    let _ = std::fs::remove_file(RUNNING_FILE);
    Ok(())
}

/// Says for other commands in this folder where the system can be reached.
fn write_running(system: &System, directory: &Path) -> Result<(), String> {
    let functions = system.stack().functions.iter();
    let running = Running {
        schema: "weir.running/v1".to_owned(),
        process: std::process::id(),
        dynamodb: system.dynamodb_url().to_owned(),
        s3: system.s3_url(),
        lambda: system.lambda_url(),
        directory: directory.to_owned(),
        functions: functions.map(|found| (found.logical_id.clone(), found.name.clone())).collect(),
        buckets: system.stack().buckets.iter().map(|bucket| bucket.name.clone()).collect(),
    };
    let path = Path::new(RUNNING_FILE);
    let json = serde_json::to_string(&running).map_err(|error| error.to_string())?;
    path.parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(path, format!("{json}\n")))
        .map_err(|error| format!("cannot write `{RUNNING_FILE}`: {error}"))
}
