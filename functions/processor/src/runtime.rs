//! The Tokio runtime of a function's program: one thread for async work, and a small pool for calls that
//! block.

use std::future::Future;
use std::process::ExitCode;

use tokio::runtime::Builder;

/// The maximum number of threads for work that blocks: the names of endpoints that are resolved, and the
/// SDK's files that are read. More work waits for a thread. AWS Lambda gives a function 1,024 threads.
const BLOCKING_THREADS_MAX: usize = 16;

/// Runs a function's program to its end. Returns a failure if the system refuses the runtime.
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
