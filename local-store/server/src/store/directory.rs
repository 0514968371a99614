//! The data directory of a node, with its lock, its identity, its log and its state. This module also
//! sets damaged directories aside.
//!
//! ```text
//! node-2/lock locked while a process uses the directory
//! node-2/identity the cluster and the node; never changed
//! node-2/log/ the log of the node
//! node-2/arc-0/ the state of its replica of the first arc; arc-1/ and so on for the others
//! ```
//!
//! A damaged directory is not used or repaired. It is set aside: renamed, with the reason in a file. The
//! node is then rebuilt from its peers with a new identity.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::states::DirectoryStates;
use crate::fatal::{Fatal, fatal};
use node::ring::{ArcId, holders};
use node::worker::{ThreadWorker, Worker};
use node::{
    FailureHandler, InsufficientRedundancy, NodeId, NodeLog, OnFatal, RECORD_BYTES_MAX,
    StateLocation as _, SubmitError, check_continuity, incarnation_of, slot_of,
};
use platform::descriptors::Descriptors;
use storage::disk::descriptors::wait_for_one;
use storage::disk::{self, Damage, Disk, ErrorKind, FileDisk};
use storage::log::{self, Log, Options};
use storage::{self, BlockCache};
use storage::{CACHE_BYTES_PER_TREE, OPEN_FILES_PER_TREE, OPEN_TABLES_MAX};

/// The maximum size of a log segment in bytes. It must exceed the size of the largest entry, but only
/// slightly, because a process with three nodes has three logs.
const SEGMENT_BYTES: u64 = 24 * 1024 * 1024;
/// The minimum number of tables (files) that the trees of a process have open. With fewer open
/// tables, most reads would first have to open a table.
const OPEN_TABLES_MIN: usize = 16;
/// The number of open files of a node's log. The log has at most 256 MB of segments, some smaller
/// segments at its beginning, spare segments, the segment that is being created, and a lock.
const OPEN_LOG_FILES: usize = 24;
const _: () = assert!(RECORD_BYTES_MAX as u64 + log::SEGMENT_HEAD_BYTES <= SEGMENT_BYTES);
const _: () = assert!(RECORD_BYTES_MAX <= log::PAYLOAD_BYTES_MAX);
/// The name of the file with the identity of the node.
const IDENTITY: &str = "identity";
/// The name of the lock files. A lock file is locked while its directory, or a state in its
/// directory, is open.
const LOCK: &str = "lock";
/// The name of the file in a set-aside directory that contains the reason.
const REASON: &str = "reason";

/// The reason in a set-aside directory that has no data.
pub(crate) const HOLDS_NOTHING: &str = "it has no data";

/// The resources that the nodes of a process share.
pub(crate) struct Host {
    /// Ends the process.
    pub(crate) on_fatal: OnFatal,
    /// The number of nodes in the process.
    nodes: u64,
    /// Whether the store has other nodes, in this process or another.
    has_peers: bool,
    /// The cache of all states. It is created with the first state, because its size depends on the
    /// number of states, which is unknown earlier.
    cache: OnceLock<BlockCache>,
}

impl Host {
    pub(crate) fn new(on_fatal: OnFatal, nodes: u64, has_peers: bool) -> Self {
        Self { on_fatal, nodes, has_peers, cache: OnceLock::new() }
    }

    fn damage(&self) -> Damage {
        if self.has_peers { Damage::of_one_among_peers() } else { Damage::of_only_node() }
    }

    /// Returns the cache of all states in a ring of the given number of arcs.
    fn cache(&self, arcs: u32) -> &BlockCache {
        let trees = self.nodes.saturating_mul(arcs.into());
        self.cache.get_or_init(|| {
            let files_max = Descriptors::of_process().files_max;
            let tables = open_tables_max(files_max, self.nodes, trees);
            BlockCache::new(CACHE_BYTES_PER_TREE.saturating_mul(trees), tables)
        })
    }
}

/// The identity of a data directory: the cluster and node that own it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The format of the directory. It increases with every change that makes the directory unreadable
    /// for older programs.
    pub(crate) format: u32,
    /// The random name of the cluster, with which nodes of different clusters detect and refuse each
    /// other.
    pub(crate) cluster: String,
    /// The node, with its incarnation.
    pub(crate) node: NodeId,
    /// The number of arcs of the cluster's ring. Directories of the first releases have one arc and do
    /// not store the number.
    #[serde(default = "one_arc")]
    pub(crate) arcs: u32,
    /// The slots of the nodes that created the cluster, if each of them has only some arcs; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) founders: Vec<u64>,
}

/// The contents of an identity file: an identity and its checksum.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    identity: Identity,
    /// The CRC-32C of the identity as JSON; files of earlier releases have no checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crc: Option<u32>,
}

impl Stored {
    fn crc_of(identity: &Identity) -> Option<u32> {
        serde_json::to_vec(identity).ok().map(|json| crc32c::crc32c(&json))
    }
}

fn one_arc() -> u32 {
    1
}

/// The format of a directory with one arc.
///
/// Earlier formats differ as follows:
/// - 1 and 2: indexes had one key attribute, and writes did not store their item collections;
/// - 3 and 4: the state had its own journal;
/// - 5 and 6: items did not store their size;
/// - 7 and 8: the tree contained the records of streams;
/// - 9 and 10: each record of a stream was a row;
/// - 11 and 12: entries with equal index keys were in the order of their items' keys;
/// - 13 and 14: commands in the log had no delta encoding;
/// - 16: a directory with several arcs, in which arc 2 assigned the numbers from 200,000,000.
const FORMAT_ONE_ARC: u32 = 15;
/// The format of a directory with several arcs.
const FORMAT_ARCS: u32 = 17;
/// The format of a directory with some of the arcs.
const FORMAT_SOME_ARCS: u32 = 18;

impl Identity {
    /// Creates the identity of a new directory.
    pub(crate) fn new(cluster: String, node: NodeId, arcs: u32) -> Self {
        Self::of_founders(cluster, node, arcs, Vec::new())
    }

    /// Creates the identity of a new directory in a cluster that these nodes have created.
    pub(crate) fn of_founders(
        cluster: String,
        node: NodeId,
        arcs: u32,
        founders: Vec<u64>,
    ) -> Self {
        Self { format: format_of(arcs, &founders), cluster, node, arcs, founders }
    }

    /// Returns the arcs that the node had when the cluster was created. A node with a later incarnation
    /// gets its arcs from the other nodes.
    pub(crate) fn first_arcs(&self) -> Vec<ArcId> {
        let own = slot_of(self.node);
        let has = |arc: &ArcId| match self.founders.as_slice() {
            [] => true,
            founders => holders(*arc, founders).contains(&own),
        };
        let is_first = incarnation_of(self.node) == 0;
        (0..self.arcs).map(ArcId).filter(|arc| is_first && has(arc)).collect()
    }
}

fn format_of(arcs: u32, founders: &[u64]) -> u32 {
    match (arcs, founders) {
        (_, [_, ..]) => FORMAT_SOME_ARCS,
        (1, []) => FORMAT_ONE_ARC,
        (_, []) => FORMAT_ARCS,
    }
}

/// The verified files of a node's directory.
pub(crate) struct NodeFiles {
    pub(crate) identity: Identity,
    pub(crate) log: NodeLog,
    /// The arcs that the node has.
    pub(crate) arcs: Vec<ArcId>,
    /// The locations of the states.
    pub(crate) states: Arc<DirectoryStates>,
    /// The worker for blocking work on the states.
    pub(crate) worker: Arc<dyn Worker>,
    /// The known damage of the log and the states.
    pub(crate) damage: Damage,
}

impl NodeFiles {
    /// Returns whether the states of the node are empty.
    pub(crate) fn has_empty_states(&self) -> Result<bool, Fatal> {
        let mut is_empty = true;
        for arc in &self.arcs {
            let location = self.states.open(*arc).map_err(Fatal::new)?;
            let state = location.open().map_err(Fatal::new)?;
            let mut visit = |_: &[u8], _: &[u8]| {
                is_empty = false;
                ControlFlow::Break(())
            };
            let all = state.view().scan(&[0], &[0xff], false, &mut visit);
            all.map_err(Fatal::new)?;
        }
        Ok(is_empty)
    }
}

/// The reason why a directory cannot be used.
#[derive(Debug, Error)]
pub enum Problem {
    /// The files of the directory are damaged. The directory must be set aside.
    #[error("{0}")]
    Damaged(String),
    /// The directory is open: retry. Only a stopping node of this process can have the directory of a
    /// node open, because this process has locked the data directory. Another store may have the data
    /// directory open.
    #[error("{0}")]
    InUse(String),
    /// Any other problem. The store must not start.
    #[error(transparent)]
    Fatal(#[from] Fatal),
}

impl From<disk::Error> for Problem {
    fn from(error: disk::Error) -> Self {
        match error.kind {
            ErrorKind::InUse => Self::InUse(error.to_string()),
            _ => Self::Fatal(Fatal::new(error)),
        }
    }
}

impl From<log::Error> for Problem {
    fn from(error: log::Error) -> Self {
        match error {
            log::Error::Corrupt { .. } => Self::Damaged(error.to_string()),
            // A running store refuses requests if the disk is full. A store that is being opened has no
            // requests yet, so opening fails.
            log::Error::Disk(disk) | log::Error::OutOfSpace(disk)
                if disk.kind == ErrorKind::OutOfSpace =>
            {
                Self::Fatal(fatal!(
                    "cannot {} the log file `{}`: {}; free {} MB of disk space for each node",
                    disk.operation,
                    disk.file,
                    disk.source,
                    SEGMENT_BYTES / (1024 * 1024),
                ))
            }
            other => Self::Fatal(Fatal::new(other)),
        }
    }
}

impl From<storage::Error> for Problem {
    fn from(error: storage::Error) -> Self {
        match error {
            storage::Error::Corrupt { .. } => Self::Damaged(error.to_string()),
            storage::Error::InUse { .. } => Self::InUse(error.to_string()),
            other => Self::Fatal(Fatal::new(other)),
        }
    }
}

/// Returns the maximum number of tables that the trees of a process have open: the file budget
/// minus the files of the logs and the other files of the trees. A tree that needs more open tables
/// waits.
fn open_tables_max(files_max: usize, nodes: u64, trees: u64) -> usize {
    let files = |number: u64, each: usize| {
        usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(each)
    };
    files_max
        .saturating_sub(files(nodes, OPEN_LOG_FILES))
        .saturating_sub(files(trees, OPEN_FILES_PER_TREE))
        .clamp(OPEN_TABLES_MIN, OPEN_TABLES_MAX)
}

/// Returns the directory of a slot.
pub(crate) fn path(data: &Path, slot: u64) -> PathBuf {
    data.join(format!("node-{slot}"))
}

/// Reads the identity of a directory; `None` if the directory has no identity yet.
pub(crate) fn read_identity(directory: &Path) -> Result<Option<Identity>, Problem> {
    let path = directory.join(IDENTITY);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(fatal!("cannot read `{}`: {error}", path.display()).into());
        }
    };
    let damaged = |reason: String| Problem::Damaged(format!("`{}`: {reason}", path.display()));
    let Stored { identity, crc } =
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if crc.is_some() && crc != Stored::crc_of(&identity) {
        return Err(damaged(
            "the checksum in the file differs from the checksum of its content".to_owned(),
        ));
    }
    if identity.format != format_of(identity.arcs, &identity.founders) {
        return Err(Problem::Fatal(fatal!(
            "`{}` has format {}; this program reads the formats {FORMAT_ONE_ARC}, {FORMAT_ARCS} and {FORMAT_SOME_ARCS}: \
             export your data with the version that wrote it, or choose another directory",
            directory.display(),
            identity.format
        )));
    }
    Ok(Some(identity))
}

/// Writes the identity of a directory durably. The directory must not have an identity yet.
pub(crate) fn write_identity(directory: &Path, identity: &Identity) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let fresh = directory.join("identity.new");
    let mut file = File::create(&fresh)?;
    let stored = Stored { identity: identity.clone(), crc: Stored::crc_of(identity) };
    serde_json::to_writer(&mut file, &stored)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(fresh, directory.join(IDENTITY))?;
    File::open(directory)?.sync_all()
}

/// Opens the log and the states of a directory. The caller must hold its lock.
pub(crate) fn open(disk: &FileDisk, identity: Identity, host: &Host) -> Result<NodeFiles, Problem> {
    let log_disk: Arc<dyn Disk> = Arc::new(disk.subdirectory("log").map_err(Fatal::new)?);
    // A truncation of the log frees two segments. In addition, one spare is reserved for the next
    // segment.
    let options = Options { segment_bytes: SEGMENT_BYTES, spares_max: 3, ..Options::default() };
    let log = Log::open(log_disk, options)?;
    let node = identity.node;
    let start = |name: &str| -> Result<Arc<dyn Worker>, Fatal> {
        let name = format!("{name}-{node}");
        Ok(Arc::new(ThreadWorker::start(&name).map_err(Fatal::new)?))
    };
    let damage = host.damage();
    let on_failure = FailureHandler::new(damage.clone(), Arc::clone(&host.on_fatal));
    let log = NodeLog::open(log, start("log")?, on_failure)?;
    let states = Arc::new(DirectoryStates::new(disk, &damage, host.cache(identity.arcs)));
    let arcs = log.arcs_with(&identity.first_arcs());
    for arc in &arcs {
        let location = states.open(*arc)?;
        let state = location.open()?;
        check_continuity(&log, *arc, &*state.view())
            .map_err(|error| Problem::Damaged(error.to_string()))?;
        location.keep(state);
    }
    Ok(NodeFiles { identity, log, arcs, states, worker: start("state")?, damage })
}

/// Returns whether all logs, states and views of a node's directory are closed.
pub(crate) fn is_free(directory: &Path) -> bool {
    let arcs = fs::read_dir(directory).into_iter().flatten().flatten();
    let states = arcs.flat_map(|arc| fs::read_dir(arc.path()).into_iter().flatten().flatten());
    // The log has no lock file; it uses the lock of the directory.
    let locks = states.map(|state| state.path().join(LOCK)).chain([directory.join(LOCK)]);
    locks.filter(|lock| lock.is_file()).all(|lock| {
        let opened = wait_for_one(|| File::options().write(true).open(&lock));
        opened.is_ok_and(|file| file.try_lock().is_ok())
    })
}

/// Returns the name of the directory of another slot, if there is one in the same data directory.
pub(crate) fn find_node_beside(data: &Path, slot: u64) -> Option<String> {
    let entries = fs::read_dir(data).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut nodes = names.filter(|name| {
        let number = name.strip_prefix("node-").and_then(|number| number.parse::<u64>().ok());
        number.is_some_and(|number| number != slot) && data.join(name).join(IDENTITY).exists()
    });
    nodes.next()
}

/// Returns the names of the directories of a slot that were set aside, in order.
pub(crate) fn list_set_aside(data: &Path, slot: u64) -> Vec<String> {
    let prefix = format!("node-{slot}.set-aside-");
    let entries = fs::read_dir(data).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<String> = names.filter(|name| name.starts_with(&prefix)).collect();
    found.sort();
    found
}

/// Returns the directories of [`list_set_aside`] that had data.
pub(crate) fn list_damaged(data: &Path, slot: u64) -> Vec<String> {
    let mut found = list_set_aside(data, slot);
    found.retain(|name| {
        let reason = fs::read_to_string(data.join(name).join(REASON)).unwrap_or_default();
        reason.trim_end() != HOLDS_NOTHING
    });
    found
}

/// The maximum number of directories of a slot that are set aside while the store runs. Without
/// this limit, a faulty disk that damages directories repeatedly would fill up.
const SET_ASIDE_MAX: usize = 3;

/// The reason why a damaged node cannot be set aside yet: keep the node, and check again.
#[derive(Debug, Error)]
pub(crate) enum NotYet {
    /// The maximum number of directories is set aside.
    #[error(
        "{count} directories of node {slot} are already set aside: replace the disk, move these directories elsewhere, and restart the store"
    )]
    TooMany { count: usize, slot: u64 },
    /// The node in this slot does not respond.
    #[error("node {0} does not respond")]
    Silent(u64),
    /// No node can assign a new identity.
    #[error("the first arc has no leader")]
    NoLeader,
    /// The other nodes cannot continue without the node.
    #[error(transparent)]
    Redundancy(#[from] InsufficientRedundancy),
    /// The leader did not assign a new identity.
    #[error(transparent)]
    NotAdmitted(#[from] SubmitError),
}

/// Checks that another directory of a slot may be set aside while the store runs.
///
/// # Errors
/// The maximum is reached.
pub(crate) fn check_room_beside(data: &Path, slot: u64) -> Result<(), NotYet> {
    let count = list_damaged(data, slot).len();
    if count < SET_ASIDE_MAX { Ok(()) } else { Err(NotYet::TooMany { count, slot }) }
}

/// Writes the reason into a damaged directory and renames it. The caller must have released its lock.
pub(crate) fn set_aside(directory: &Path, reason: &str) -> Result<PathBuf, Fatal> {
    let fail = |error: io::Error| {
        fatal!("cannot set the damaged directory `{}` aside: {error}", directory.display())
    };
    fs::write(directory.join(REASON), format!("{reason}\n")).map_err(fail)?;
    for number in 1_u32.. {
        let aside = directory.with_added_extension(format!("set-aside-{number}"));
        if !aside.exists() {
            fs::rename(directory, &aside).map_err(fail)?;
            let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = File::open(parent.unwrap_or(Path::new("."))).map_err(fail)?;
            parent.sync_all().map_err(fail)?;
            return Ok(aside);
        }
    }
    Err(fatal!(
        "too many directories next to `{}` are set aside; move the set-aside directories elsewhere",
        directory.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_stay_open_as_far_as_the_limit_allows() {
        for (limit, nodes, arcs, expected) in [
            (128, 3, 1, OPEN_TABLES_MIN),
            (512, 3, 1, 144),
            (1_024, 3, 1, OPEN_TABLES_MAX),
            (1_024, 1, 16, 112),
            (1_048_576, 3, 16, OPEN_TABLES_MAX),
        ] {
            let files_max = Descriptors::of(limit).files_max;
            assert_eq!(open_tables_max(files_max, nodes, nodes * arcs), expected, "{limit}");
        }
    }

    #[test]
    fn a_full_disk_error_has_the_needed_size() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = disk::Error::new(disk::Operation::Write, "log/a", full);
        let Problem::Fatal(said) = Problem::from(log::Error::from(error)) else { panic!() };
        let said = said.to_string();
        assert!(said.contains("24 MB") && !said.contains("no data is lost"), "{said}");
    }

    #[test]
    fn identities_round_trip_and_other_formats_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("node-2");
        assert!(matches!(read_identity(&directory), Ok(None)));
        for arcs in [1, 3] {
            let identity = Identity::new("c".to_owned(), 258, arcs);
            write_identity(&directory, &identity).unwrap();
            assert!(matches!(read_identity(&directory), Ok(Some(found)) if found == identity));
        }
        let identity = Identity::of_founders("c".to_owned(), 2, 3, vec![1, 2, 3, 4]);
        assert_eq!(identity.first_arcs(), [ArcId(0), ArcId(1)]);
        write_identity(&directory, &identity).unwrap();
        assert!(matches!(read_identity(&directory), Ok(Some(found)) if found == identity));
        for other in [
            // Identity files of a release without arcs, and of later releases.
            r#"{"format":1,"cluster":"c","node":258}"#,
            r#"{"format":2,"cluster":"c","node":258,"arcs":3}"#,
            r#"{"format":6,"cluster":"c","node":258,"arcs":3}"#,
            r#"{"format":10,"cluster":"c","node":258,"arcs":3}"#,
            r#"{"format":11,"cluster":"c","node":258,"arcs":1}"#,
            r#"{"format":13,"cluster":"c","node":258,"arcs":1}"#,
            r#"{"format":14,"cluster":"c","node":258,"arcs":3}"#,
            r#"{"format":16,"cluster":"c","node":258,"arcs":3}"#,
            r#"{"format":17,"cluster":"c","node":258,"arcs":1}"#,
            r#"{"format":16,"cluster":"c","node":258,"arcs":3,"founders":[1,2,3,4]}"#,
            r#"{"format":18,"cluster":"c","node":258,"arcs":3}"#,
        ] {
            fs::write(directory.join(IDENTITY), other).unwrap();
            let Err(Problem::Fatal(reason)) = read_identity(&directory) else { panic!("{other}") };
            let reason = reason.to_string();
            assert!(
                reason.contains("reads the formats 15, 17 and 18: export your data"),
                "{reason}"
            );
        }
        fs::write(directory.join(IDENTITY), "x").unwrap();
        assert!(matches!(read_identity(&directory), Err(Problem::Damaged(_))));
    }

    /// Goal: a flipped bit in an identity file is detected, and never results in another identity.
    #[test]
    fn a_bit_that_flips_in_an_identity_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let identity = Identity::new("c1".to_owned(), 2, 1);
        write_identity(folder.path(), &identity).unwrap();
        let path = folder.path().join(IDENTITY);
        let right = fs::read(&path).unwrap();
        for place in 0..right.len() * 8 {
            let mut wrong = right.clone();
            wrong[place / 8] ^= 1 << (place % 8);
            fs::write(&path, &wrong).unwrap();
            let read = read_identity(folder.path());
            // A flipped bit in the member name of the checksum, or in white space at the end, does not
            // change the identity.
            let is_same = matches!(&read, Ok(Some(found)) if *found == identity);
            let text = String::from_utf8_lossy(&wrong);
            assert!(is_same || matches!(read, Err(Problem::Damaged(_))), "{text}");
        }
    }

    #[test]
    fn a_directory_that_is_set_aside_has_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("node-2");
        for number in 1..3 {
            fs::create_dir(&directory).unwrap();
            let aside = set_aside(&directory, "rot").unwrap();
            assert_eq!(aside, folder.path().join(format!("node-2.set-aside-{number}")));
            assert_eq!(fs::read_to_string(aside.join(REASON)).unwrap(), "rot\n");
            assert!(!directory.exists());
        }
    }
}
