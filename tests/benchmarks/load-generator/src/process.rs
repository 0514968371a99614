//! The CPU time and memory of processes, from `/proc` on Linux.
//!
//! Other systems are not supported.

use std::fs;

use crate::error::Result;

/// Microseconds per unit of the CPU times in `/proc/PID/stat`: on every supported architecture,
/// Linux reports 100 ticks per second to programs (proc(5), `USER_HZ`).
const TICK_MICROS: u64 = 10_000;

/// The sum of the resources used by some processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// The user and system time of the processes since their start, in microseconds, with a
    /// resolution of 10 ms.
    pub(crate) cpu_micros: u64,
    /// The current resident memory in bytes.
    pub(crate) resident_bytes: u64,
}

/// Reads the resources that these processes have used since their start.
///
/// # Errors
/// When a process does not exist, or the system has no `/proc`.
pub(crate) fn read_usage(pids: &[u32]) -> Result<Usage> {
    let mut sum = Usage::default();
    for pid in pids {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            fs::read_to_string(&path).map_err(|error| {
                format!(
                    "cannot read {path}: {error}; --server-pid needs Linux and a running process"
                )
            })
        };
        let unknown =
            |file| format!("/proc/{pid}/{file} does not have the format that proc(5) describes");
        sum.cpu_micros += cpu_micros(&read("stat")?).ok_or_else(|| unknown("stat"))?;
        sum.resident_bytes += resident_bytes(&read("status")?).ok_or_else(|| unknown("status"))?;
    }
    Ok(sum)
}

/// Returns the sum of the fields `utime` and `stime` of `/proc/PID/stat`, the 14th and 15th. The
/// second field is the name in parentheses, which may contain spaces and parentheses.
fn cpu_micros(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user.saturating_add(system).saturating_mul(TICK_MICROS))
}

/// Returns the value of the line `VmRSS:   1234 kB` of `/proc/PID/status`.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_stat() {
        let cases = [
            ("7 (store) S 1 7 7 0 -1 4194304 9 0 0 0 250 50 0 0 20 0 8 0 1 2 3", Some(3_000_000)),
            ("7 (a) b) (c) R 1 7 7 0 -1 4194304 9 0 0 0 1 2 9 9 20 0", Some(30_000)),
            ("7 (store) S 1 7 7", None),
            ("", None),
            ("7 (store) S 1 7 7 0 -1 4194304 9 0 0 0 x 50 0", None),
        ];
        for (stat, expected) in cases {
            assert_eq!(cpu_micros(stat), expected, "{stat}");
        }
    }

    #[test]
    fn the_memory_of_status() {
        let status = "Name:\tstore\nVmHWM:\t  9000 kB\nVmRSS:\t    1234 kB\nThreads:\t8\n";
        assert_eq!(resident_bytes(status), Some(1234 * 1024));
        assert_eq!(resident_bytes("Name:\tkthreadd\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_used_memory() {
        let usage = read_usage(&[std::process::id()]).unwrap();
        assert!(usage.resident_bytes > 0);
        assert!(read_usage(&[u32::MAX]).unwrap_err().to_string().contains("--server-pid"));
    }
}
