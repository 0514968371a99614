//! `weir logs`: what a function wrote, joined by request id.
//!
//! Reads the log files of `weir up`, also when nothing runs.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::exit::Exit;
use crate::output;
use crate::running::{Look, match_function};

/// How often the file is looked at with `--follow`.
const PERIOD: Duration = Duration::from_millis(200);

/// What to show.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir logs CountersFunction\n  weir logs archive --follow\n  weir logs archive --request 6c1f0d9c-7d8b-4b6e-9f5f-1f0d9c7d8b4b"
)]
pub struct LogsArguments {
    /// The function's name; `Function` at its end may be left out
    pub function: String,
    /// Go on as more is written, until Ctrl-C
    #[arg(long)]
    pub follow: bool,
    /// Only the lines of one invocation
    #[arg(long, value_name = "ID")]
    pub request: Option<String>,
    /// The data folder of `weir up` [default: the running one's, or .weir/up]
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: Option<PathBuf>,
}

/// The data folder that is meant; also that of a `weir up` that was killed.
pub(crate) fn data_folder(flag: Option<&Path>) -> PathBuf {
    flag.map_or_else(
        || {
            let running = Look::here().said().map(|said| said.directory).unwrap_or_default();
            if running.as_os_str().is_empty() { PathBuf::from(".weir/up") } else { running }
        },
        Path::to_owned,
    )
}

/// Shows the lines.
///
/// # Errors
/// When there is no such log.
pub async fn run(arguments: &LogsArguments) -> Result<Exit, String> {
    let folder = data_folder(arguments.directory.as_deref()).join("logs");
    let names = names(&folder)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let name = match_function(&arguments.function, &names)?;
    let path = folder.join(format!("{name}.log"));
    let wanted = arguments.request.as_ref().map(|id| format!(" {id} "));
    let is_wanted = |line: &str| wanted.as_ref().is_none_or(|id| line.contains(id));
    let mut shown = false;
    if let Ok(older) = std::fs::read(path.with_extension("log.1")) {
        shown |= show_lines(&older, &is_wanted);
    }
    let mut read = 0;
    loop {
        let (bytes, end) = read_from(&path, read)
            .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
        // A line that is not whole yet is shown when it is.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        shown |= show_lines(bytes.get(..whole).unwrap_or_default(), &is_wanted);
        read = end + whole as u64;
        if !arguments.follow {
            return match &arguments.request {
                Some(id) if !shown => Err(format!(
                    "no line of the request `{id}` is in `{}`, nor in the log before it; the id stands behind `RequestId:` in `weir logs {name}`",
                    path.display()
                )),
                _ => Ok(Exit::Done),
            };
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// The bytes from a place on, and the place; from the beginning if the file was begun anew.
fn read_from(path: &Path, from: u64) -> std::io::Result<(Vec<u8>, u64)> {
    let mut file = File::open(path)?;
    let start = if file.metadata()?.len() < from { 0 } else { from };
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((bytes, start))
}

/// Shows the lines that are wanted; gives whether there was one.
fn show_lines(bytes: &[u8], is_wanted: &dyn Fn(&str) -> bool) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let lines: String =
        text.lines().filter(|line| is_wanted(line)).map(|line| format!("{line}\n")).collect();
    if !lines.is_empty() {
        output::show(&lines);
    }
    !lines.is_empty()
}

fn names(folder: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| {
        let folder = folder.display();
        format!("there are no logs in `{folder}` ({error}); run `weir up`, or name its folder with --directory")
    })?;
    let of = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(".log")?;
        Some(name.to_owned())
    };
    Ok(entries.flatten().filter_map(|entry| of(entry.path())).collect())
}
