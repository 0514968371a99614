//! How much memory an instance's process has used, so that one that uses more than its function's
//! `MemorySize` ends as it would on Lambda.
//!
//! Measured is the process's resident set as Linux counts it (`VmHWM` of `/proc/PID/status`: its
//! highest value so far, which no pause between two looks can miss). Elsewhere nothing is known, and
//! nothing is ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often a process is looked at: what it takes in between is more than Lambda would have given
/// it. A look costs some microseconds.
pub(super) const PERIOD: Duration = Duration::from_millis(50);

const BYTES_IN_KB: u64 = 1_024;

/// The most memory that one process ever had.
#[derive(Debug, Default)]
pub(super) struct Peak(AtomicU64);

impl Peak {
    /// Looks at the process; the highest value so far in MB, also after the process has ended.
    /// `None` when the system never told.
    pub(super) fn look(&self, pid: u32) -> Option<u64> {
        let found = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .ok()
            .and_then(|status| resident_mb(&status));
        let before = self.0.fetch_max(found.unwrap_or(0), Ordering::Relaxed);
        Some(before.max(found.unwrap_or(0))).filter(|peak| *peak > 0)
    }

    /// The memory in MB that the process used, if that is more than it has.
    pub(super) fn over(&self, pid: u32, memory_mb: u32) -> Option<u64> {
        self.look(pid).filter(|used| *used > u64::from(memory_mb))
    }
}

/// The highest resident set in a `/proc/PID/status`, in MB, rounded up as Lambda reports it.
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
        // A process that has ended, and is not waited for yet, has no such line.
        assert_eq!(resident_mb("Name:\tx\nState:\tZ (zombie)\n"), None);
    }
}
