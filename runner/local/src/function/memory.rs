//! Measures the memory that an instance's process has used. A process that uses more than its function's
//! `MemorySize` is killed, as on Lambda.
//!
//! The value is the maximum resident set of the process according to Linux (`VmHWM` of
//! `/proc/PID/status`). Because it is a maximum, no peak between two checks is missed. Other operating
//! systems do not report it, so no process is killed there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The interval between two checks of a process. A check takes a few microseconds.
pub(super) const PERIOD: Duration = Duration::from_millis(50);

const BYTES_IN_KB: u64 = 1_024;

/// The maximum memory that a process has used.
#[derive(Debug, Default)]
pub(super) struct Peak(AtomicU64);

impl Peak {
    /// Reads the maximum memory so far and returns it in MB. After the process has ended, returns the
    /// last value. Returns `None` if the operating system never reported a value.
    pub(super) fn read_peak(&self, pid: u32) -> Option<u64> {
        let found = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .ok()
            .and_then(|status| resident_mb(&status));
        let before = self.0.fetch_max(found.unwrap_or(0), Ordering::Relaxed);
        Some(before.max(found.unwrap_or(0))).filter(|peak| *peak > 0)
    }

    /// Returns the memory in MB that the process has used, if it is more than `memory_mb`.
    pub(super) fn over(&self, pid: u32, memory_mb: u32) -> Option<u64> {
        self.read_peak(pid).filter(|used| *used > u64::from(memory_mb))
    }
}

/// Returns the maximum resident set in a `/proc/PID/status`, in MB, rounded up as Lambda does.
fn resident_mb(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kb: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kb.div_ceil(BYTES_IN_KB))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_resident_set_is_read_in_whole_megabytes() {
        let status = "Name:\tx\nVmPeak:\t  999999 kB\nVmHWM:\t   33793 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(resident_mb(status), Some(34));
        // A zombie process has no such line.
        assert_eq!(resident_mb("Name:\tx\nState:\tZ (zombie)\n"), None);
    }
}
