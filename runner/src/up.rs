//! `weir up`: the template, running until Ctrl-C, on data that is still there the next time.
//!
//! What it runs is in `system`; this is only the beginning and the end.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::endpoint::RUNNING_FILE;
use crate::system::{Options, System};
use crate::template::Stack;

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
    /// Where the data is kept
    #[arg(long, value_name = "DIRECTORY", default_value = ".weir/up")]
    pub directory: PathBuf,
    /// Deliver each batch that succeeded a second time, as Lambda may
    #[arg(long)]
    pub duplicate_deliveries: bool,
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
        duplicate_deliveries: arguments.duplicate_deliveries,
        template_folder: template_folder.to_owned(),
    };
    let system = System::start(stack, options).await?;
    write_running(&system)?;
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
    server::command_line::interrupted().await;
    tracing::info!("ending");
    system.shutdown().await;
    // The file may be gone or another run's by now; both are fine.
    let _ = std::fs::remove_file(RUNNING_FILE);
    Ok(())
}

/// Says for other commands in this folder where the system can be reached.
fn write_running(system: &System) -> Result<(), String> {
    let running = serde_json::json!({
        "schema": "weir.running/v1",
        "process": std::process::id(),
        "dynamodb": system.dynamodb_url(),
        "s3": system.s3_url(),
    });
    let path = Path::new(RUNNING_FILE);
    path.parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(path, format!("{running}\n")))
        .map_err(|error| format!("cannot write `{RUNNING_FILE}`: {error}"))
}
