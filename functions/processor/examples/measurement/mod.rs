//! Helpers of the measurements: arguments, CPU time of the thread, and peak memory.

use std::fs;

/// Returns the value of the argument `name`: the argument that follows it.
pub(crate) fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

/// Returns the number of records to measure with: `--records`, by default a million. Ends the
/// program with exit code 2 if the value is not a number.
pub(crate) fn records() -> u64 {
    let Some(text) = argument("--records") else { return 1_000_000 };
    text.parse().unwrap_or_else(|_| {
        eprintln!("--records {text}: write a whole number, such as --records 100000");
        std::process::exit(2)
    })
}

/// Returns the seconds of CPU time that this thread used. Other processes do not affect this time.
/// Needs Linux; on another system the program ends with exit code 2.
#[expect(clippy::cast_precision_loss, reason = "seconds for people")]
pub(crate) fn busy_seconds() -> f64 {
    let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = told.split_whitespace().next().and_then(|text| text.parse::<u64>().ok());
    let Some(nanoseconds) = nanoseconds else {
        eprintln!("this measurement needs Linux: /proc/thread-self/schedstat cannot be read");
        std::process::exit(2)
    };
    nanoseconds as f64 / 1e9
}

/// Returns the peak memory of the process, as text.
pub(crate) fn peak_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: unknown");
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}
