//! The Tokio runtime of a function's program: one thread for async work, and a small pool for calls that
//! block.

use std::future::Future;
use std::process::ExitCode;

use tokio::runtime::Builder;

/// Maximum number of threads for blocking work: resolving the names of endpoints, and reading the
/// SDK's files. Further work waits for a thread. AWS Lambda allows a function 1,024 threads.
const BLOCKING_THREADS_MAX: usize = 16;

/// Runs a function's program until it ends. Returns a failure exit code if the runtime cannot
/// start.
#[expect(clippy::print_stderr, reason = "the log begins with the function")]
pub fn run(program: impl Future<Output = ExitCode>) -> ExitCode {
    let mut runtime = Builder::new_current_thread();
    match runtime.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).build() {
        Ok(runtime) => runtime.block_on(program),
        Err(error) => {
            eprintln!("error: the function cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}
