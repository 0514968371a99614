//! The limit on open file descriptors of this process, and its division into budgets for files and
//! connections.
//!
//! A process that runs out of descriptors can open no file and accept no connection. Connections
//! and files therefore have separate bounds, whose sum with the reserve is at most the limit.
//!
//! | budget | size | used by |
//! |---|---|---|
//! | reserve | 32, and an eighth of the limit | listeners, standard streams, the event loop, pipes of functions, outgoing connections |
//! | connections | a quarter of the rest, at most 2,048 | clients and peers |
//! | files | the remainder | logs, tables, objects |

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The minimum limit for a store of three nodes, which opens about 60 files at its start.
const LIMIT_MIN: usize = 128;
/// The soft limit to set if the system refuses to raise it to the hard limit. macOS rejects higher
/// values. Source: `OPEN_MAX` in its `sys/syslimits.h`.
const LIMIT_FALLBACK: u64 = 10_240;
/// The limit to assume on a system without a limit.
const LIMIT_ASSUMED: usize = 1_048_576;
/// The minimum reserve of descriptors that are neither files nor client connections.
const RESERVE_MIN: usize = 32;
/// The maximum number of connections. More connections would cost memory for their buffers, and the
/// clients of a single computer do not need them.
const CONNECTIONS_MAX: usize = 2_048;

/// The limit of this process, and its budgets for files and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// The number of descriptors that the process may have open.
    pub limit: usize,
    /// The maximum number of connections of clients and peers, for all listeners together.
    pub connections_max: usize,
    /// The maximum number of files that the process may keep open.
    pub files_max: usize,
}

/// The error that the limit of file descriptors is too low to run.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "this process may open {limit} files and connections, but needs at least {LIMIT_MIN}: raise the hard limit (`ulimit -Hn`, or LimitNOFILE of a systemd unit)"
)]
pub struct TooFew {
    limit: usize,
}

impl Descriptors {
    /// Divides `limit` descriptors into budgets.
    #[must_use]
    pub fn of(limit: usize) -> Self {
        let shared = limit.saturating_sub(RESERVE_MIN + limit / 8);
        let connections_max = (shared / 4).clamp(1, CONNECTIONS_MAX);
        Self { limit, connections_max, files_max: shared.saturating_sub(connections_max) }
    }

    /// Returns the budgets of this process. The first call raises the soft limit to the hard limit.
    #[must_use]
    pub fn of_process() -> Self {
        static OF_PROCESS: OnceLock<Descriptors> = OnceLock::new();
        *OF_PROCESS.get_or_init(|| Self::of(raise()))
    }

    /// Raises the soft limit of this process to the hard limit. Call this function before any other
    /// work.
    ///
    /// # Errors
    /// When the hard limit is too low to run a store.
    pub fn prepare() -> Result<Self, TooFew> {
        let own = Self::of_process();
        if own.limit < LIMIT_MIN { Err(TooFew { limit: own.limit }) } else { Ok(own) }
    }
}

/// Raises the soft limit to the hard limit, and returns the new soft limit.
fn raise() -> usize {
    let found = getrlimit(Resource::Nofile);
    let set = |current| setrlimit(Resource::Nofile, Rlimit { current, ..found });
    if found.current != found.maximum && set(found.maximum).is_err() {
        let fallback = found.maximum.unwrap_or(u64::MAX).min(LIMIT_FALLBACK);
        if found.current.is_some_and(|current| current < fallback)
            && let Err(error) = set(Some(fallback))
        {
            tracing::warn!(%error, "cannot raise the limit on open files");
        }
    }
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(LIMIT_ASSUMED, |limit| usize::try_from(limit).unwrap_or(LIMIT_ASSUMED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_stay_below_the_limit() {
        for (limit, connections_max, files_max) in [
            (128, 20, 60),
            (256, 48, 144),
            (1_024, 216, 648),
            (4_096, 888, 2_664),
            (1_048_576, 2_048, 915_424),
        ] {
            let shares = Descriptors::of(limit);
            assert_eq!(shares, Descriptors { limit, connections_max, files_max });
            assert!(connections_max + files_max + RESERVE_MIN < limit);
        }
    }

    #[test]
    fn the_limit_of_the_process_is_the_hard_one() {
        let own = Descriptors::prepare().unwrap();
        let found = getrlimit(Resource::Nofile);
        let limit = usize::try_from(found.current.unwrap()).unwrap();
        assert_eq!(own, Descriptors::of(limit));
        assert!(found.current == found.maximum || limit as u64 >= LIMIT_FALLBACK);
    }
}
