//! The data directory of a node: its lock, its identity, its log and its state; and what is done
//! with one that is damaged.
//!
//! ```text
//! node-2/lock        held while a process uses the directory
//! node-2/identity    which cluster and which node this is; never changed
//! node-2/log/        the log of the node
//! node-2/arc-0/      the state of its replica of the first arc; arc-1/ and so on of the others
//! ```
//!
//! A damaged directory is never served and never repaired: it is renamed, with the reason in it, and
//! the node is filled again from its peers under a new identity.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use node::ring::ArcId;
use node::worker::{ThreadWorker, Worker};
use node::{
    DirectoryHome, FailureHandler, NodeId, NodeLog, OnFatal, RECORD_BYTES_MAX, StorageHome,
    check_continuity,
};
use platform::descriptors::Descriptors;
use storage::disk::descriptors::wait_for_one;
use storage::disk::{Damage, Disk, ErrorKind, FileDisk};
use storage::log::{self, Log, Options};
use storage::{self, BlockCache, CACHE_BYTES_PER_TREE, OPEN_FILES_PER_TREE, OPEN_TABLES_MAX};

/// Three nodes of one process keep three logs: smaller segments than one log alone would have, and
/// still larger than the largest entry.
const SEGMENT_BYTES: u64 = 24 * 1024 * 1024;
/// Tables that the trees of a process keep open at least: with fewer, most reads open a table.
const OPEN_TABLES_MIN: usize = 16;
/// Files of a node's log that are open: those of the 256 MB that it may take, its spares, the one that
/// is being made, and its lock.
const OPEN_LOG_FILES: usize = 24;
const _: () = assert!(RECORD_BYTES_MAX as u64 + log::SEGMENT_HEAD_BYTES <= SEGMENT_BYTES);
const _: () = assert!(RECORD_BYTES_MAX <= log::PAYLOAD_BYTES_MAX);
/// The file that says who the node is.
const IDENTITY: &str = "identity";
/// The files that are locked while a directory, or a state in it, is open.
const LOCK: &str = "lock";
/// The file in a directory that was set aside that says why.
const REASON: &str = "reason";

/// The reason of a directory that nothing was written to.
pub(crate) const HOLDS_NOTHING: &str = "it holds nothing";

/// What the nodes of a process share.
pub(crate) struct Host {
    /// Ends the process.
    pub(crate) on_fatal: OnFatal,
    /// Nodes in the process.
    nodes: u64,
    /// Whether the store has other nodes than one, here or elsewhere.
    has_peers: bool,
    /// Of what is read of the states. Made with the first of them, as that says how many there are.
    cache: OnceLock<BlockCache>,
}

impl Host {
    pub(crate) fn new(on_fatal: OnFatal, nodes: u64, has_peers: bool) -> Self {
        Self { on_fatal, nodes, has_peers, cache: OnceLock::new() }
    }

    fn damage(&self) -> Damage {
        if self.has_peers { Damage::of_one_among_peers() } else { Damage::of_only_node() }
    }

    /// The cache of all states in a ring of so many arcs.
    fn cache(&self, arcs: u32) -> &BlockCache {
        let trees = self.nodes.saturating_mul(arcs.into());
        self.cache.get_or_init(|| {
            let files_max = Descriptors::of_process().files_max;
            let tables = open_tables_max(files_max, self.nodes, trees);
            BlockCache::new(CACHE_BYTES_PER_TREE.saturating_mul(trees), tables)
        })
    }
}

/// Who a data directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Raised whenever an older program would misread the directory.
    pub(crate) format: u32,
    /// Chosen at random when the cluster began: nodes of another one are refused.
    pub(crate) cluster: String,
    /// The node, with its incarnation.
    pub(crate) node: NodeId,
    /// Arcs of the cluster's ring. Directories of the first programs had one and did not say so.
    #[serde(default = "one_arc")]
    pub(crate) arcs: u32,
}

/// An identity as it stands in its file.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    identity: Identity,
    /// CRC-32C of the identity as JSON; files of earlier programs have none.
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

/// The format of a directory with one arc. Formats 1 and 2 stored indexes with one key attribute, and
/// writes without their item collections; in 3 and 4 the state had a journal of its own; in
/// 5 and 6 items did not say their size; in 7 and 8 the tree held the records of streams; in 9 and 10
/// each record of a stream was a row; in 11 and 12 entries of one index key were in the order of their
/// items' keys; in 13 and 14 each command of the log was said as it is.
const FORMAT_ONE_ARC: u32 = 15;
/// The format of a directory with several arcs.
const FORMAT_ARCS: u32 = 16;

impl Identity {
    /// Who a new directory belongs to.
    pub(crate) fn new(cluster: String, node: NodeId, arcs: u32) -> Self {
        Self { format: format_of(arcs), cluster, node, arcs }
    }
}

fn format_of(arcs: u32) -> u32 {
    if arcs == 1 { FORMAT_ONE_ARC } else { FORMAT_ARCS }
}

/// A node's directory whose files were found right.
pub(crate) struct NodeFiles {
    pub(crate) identity: Identity,
    pub(crate) log: NodeLog,
    /// For each arc, in their order, where its state is.
    pub(crate) homes: Vec<Arc<dyn StorageHome>>,
    /// Does the blocking work on the states.
    pub(crate) worker: Arc<dyn Worker>,
    /// What is known of damage of any of them.
    pub(crate) damage: Damage,
}

impl NodeFiles {
    /// Whether the states of the node hold nothing.
    pub(crate) fn has_empty_states(&self) -> Result<bool, String> {
        let mut is_empty = true;
        for home in &self.homes {
            let state = home.open().map_err(|error| error.to_string())?;
            let mut visit = |_: &[u8], _: &[u8]| {
                is_empty = false;
                ControlFlow::Break(())
            };
            let all = state.view().scan(&[0], &[0xff], false, &mut visit);
            all.map_err(|error| error.to_string())?;
        }
        Ok(is_empty)
    }
}

/// Why a directory cannot be used.
pub(crate) enum Problem {
    /// Its files contradict themselves: it is to be set aside.
    Damaged(String),
    /// It is open elsewhere: in this process, whose lock on the whole it is, by a node that ends.
    InUse(String),
    /// Anything else: do not start.
    Other(String),
}

impl From<log::Error> for Problem {
    fn from(error: log::Error) -> Self {
        match error {
            log::Error::Corrupt { .. } => Self::Damaged(error.to_string()),
            // Nobody wrote yet, so there is no write to be refused.
            log::Error::Disk(disk) | log::Error::OutOfSpace(disk)
                if disk.kind == ErrorKind::OutOfSpace =>
            {
                Self::Other(format!(
                    "cannot {} `{}` of the log, which has {} MB: {}; free that much for each node",
                    disk.operation,
                    disk.file,
                    SEGMENT_BYTES / (1024 * 1024),
                    disk.source
                ))
            }
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<storage::Error> for Problem {
    fn from(error: storage::Error) -> Self {
        match error {
            storage::Error::Corrupt { .. } => Self::Damaged(error.to_string()),
            storage::Error::InUse { .. } => Self::InUse(error.to_string()),
            other => Self::Other(other.to_string()),
        }
    }
}

/// Returns how many tables the trees of a process keep open: what its share of files leaves beside
/// the logs and what the trees have open otherwise. A tree that needs more for a moment waits.
fn open_tables_max(files_max: usize, nodes: u64, trees: u64) -> usize {
    let files = |number: u64, each: usize| {
        usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(each)
    };
    files_max
        .saturating_sub(files(nodes, OPEN_LOG_FILES))
        .saturating_sub(files(trees, OPEN_FILES_PER_TREE))
        .clamp(OPEN_TABLES_MIN, OPEN_TABLES_MAX)
}

/// The directory of a slot.
pub(crate) fn path(data: &Path, slot: u64) -> PathBuf {
    data.join(format!("node-{slot}"))
}

/// Who the directory belongs to; `None` if it belongs to nobody yet.
pub(crate) fn read_identity(directory: &Path) -> Result<Option<Identity>, Problem> {
    let path = directory.join(IDENTITY);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Problem::Other(format!("cannot read `{}`: {error}", path.display())));
        }
    };
    let damaged = |reason: String| Problem::Damaged(format!("`{}`: {reason}", path.display()));
    let Stored { identity, crc } =
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if crc.is_some() && crc != Stored::crc_of(&identity) {
        return Err(damaged("its checksum is another one".to_owned()));
    }
    if identity.format != format_of(identity.arcs) {
        return Err(Problem::Other(format!(
            "`{}` has format {}; this program reads the formats {FORMAT_ONE_ARC} and {FORMAT_ARCS}: \
             take what you need out of it with the version that wrote it, or choose another directory",
            directory.display(),
            identity.format
        )));
    }
    Ok(Some(identity))
}

/// Makes the directory belong to a node, durably. It must belong to nobody.
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

/// Opens what a directory holds. The caller holds its lock.
pub(crate) fn open(disk: &FileDisk, identity: Identity, host: &Host) -> Result<NodeFiles, Problem> {
    let other = |error: &dyn std::fmt::Display| Problem::Other(error.to_string());
    let log_disk: Arc<dyn Disk> = Arc::new(disk.subdirectory("log").map_err(|e| other(&e))?);
    // A shortening gives back two segments, while one is there for the next switch already.
    let options = Options { segment_bytes: SEGMENT_BYTES, spares_max: 3, ..Options::default() };
    let log = Log::open(log_disk, options)?;
    let node = identity.node;
    let start = |name: &str| -> Result<Arc<dyn Worker>, Problem> {
        let name = format!("{name}-{node}");
        Ok(Arc::new(ThreadWorker::start(&name).map_err(|e| other(&e))?))
    };
    let damage = host.damage();
    let on_failure = FailureHandler::new(damage.clone(), Arc::clone(&host.on_fatal));
    let log = NodeLog::open(log, start("log")?, on_failure)?;
    let mut homes: Vec<Arc<dyn StorageHome>> = Vec::new();
    for arc in (0..identity.arcs).map(ArcId) {
        let home = DirectoryHome::new(
            disk.path().join(arc.to_string()),
            host.cache(identity.arcs).clone(),
            damage.clone(),
        )?;
        // Opened once to see whether it can be: the node opens it for good.
        let state = home.open()?;
        check_continuity(&log, arc, &*state.view()).map_err(Problem::Damaged)?;
        drop(state);
        homes.push(Arc::new(home));
    }
    Ok(NodeFiles { identity, log, homes, worker: start("state")?, damage })
}

/// Whether nothing has a node's directory open: not its log, no state of it and no view of one.
pub(crate) fn is_free(directory: &Path) -> bool {
    let arcs = fs::read_dir(directory).into_iter().flatten().flatten();
    let states = arcs.flat_map(|arc| fs::read_dir(arc.path()).into_iter().flatten().flatten());
    // The log's lock is that of the directory.
    let locks = states.map(|state| state.path().join(LOCK)).chain([directory.join(LOCK)]);
    locks.filter(|lock| lock.is_file()).all(|lock| {
        let opened = wait_for_one(|| File::options().write(true).open(&lock));
        opened.is_ok_and(|file| file.try_lock().is_ok())
    })
}

/// The name of the directory of another node than the slot's, if there is one.
pub(crate) fn find_node_beside(data: &Path, slot: u64) -> Option<String> {
    let entries = fs::read_dir(data).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut nodes = names.filter(|name| {
        let number = name.strip_prefix("node-").and_then(|number| number.parse::<u64>().ok());
        number.is_some_and(|number| number != slot) && data.join(name).join(IDENTITY).exists()
    });
    nodes.next()
}

/// The names of the directories of a slot that were set aside, in order.
pub(crate) fn list_set_aside(data: &Path, slot: u64) -> Vec<String> {
    let prefix = format!("node-{slot}.set-aside-");
    let entries = fs::read_dir(data).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<String> = names.filter(|name| name.starts_with(&prefix)).collect();
    found.sort();
    found
}

/// As [`list_set_aside`], without those that held nothing.
pub(crate) fn list_damaged(data: &Path, slot: u64) -> Vec<String> {
    let mut found = list_set_aside(data, slot);
    found.retain(|name| {
        let reason = fs::read_to_string(data.join(name).join(REASON)).unwrap_or_default();
        reason.trim_end() != HOLDS_NOTHING
    });
    found
}

/// Directories of a slot that were set aside, beyond which none is while the store runs: a disk that
/// damages what it holds again and again would be filled with them.
const SET_ASIDE_MAX: usize = 3;

/// Whether another directory of a slot may be set aside while the store runs.
///
/// # Errors
/// That there are too many, and what to do.
pub(crate) fn check_room_beside(data: &Path, slot: u64) -> Result<(), String> {
    let count = list_damaged(data, slot).len();
    if count < SET_ASIDE_MAX {
        return Ok(());
    }
    Err(format!(
        "{count} directories of node {slot} were set aside already: replace the disk, move them away, \
         and start the store again"
    ))
}

/// Renames a damaged directory and leaves the reason in it. The caller does not hold its lock.
pub(crate) fn set_aside(directory: &Path, reason: &str) -> Result<PathBuf, String> {
    let fail = |error: io::Error| {
        format!("the damaged `{}` cannot be set aside: {error}", directory.display())
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
    Err(format!("too many directories beside `{}` were set aside", directory.display()))
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
    fn an_opening_without_room_says_how_much_is_needed() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = storage::disk::Error::new(storage::disk::Operation::Write, "log/a", full);
        let Problem::Other(said) = Problem::from(log::Error::from(error)) else { panic!() };
        assert!(said.contains("24 MB") && !said.contains("nothing is lost"), "{said}");
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
        for other in [
            // As a program wrote it that knew no arcs, and as the next ones did.
            r#"{"format":1,"cluster":"c","node":258}"#,
            r#"{"format":2,"cluster":"c","node":258,"arcs":3}"#,
            r#"{"format":6,"cluster":"c","node":258,"arcs":3}"#,
            r#"{"format":10,"cluster":"c","node":258,"arcs":3}"#,
            r#"{"format":11,"cluster":"c","node":258,"arcs":1}"#,
            r#"{"format":13,"cluster":"c","node":258,"arcs":1}"#,
            r#"{"format":14,"cluster":"c","node":258,"arcs":3}"#,
            r#"{"format":17,"cluster":"c","node":258,"arcs":1}"#,
        ] {
            fs::write(directory.join(IDENTITY), other).unwrap();
            let Err(Problem::Other(reason)) = read_identity(&directory) else { panic!("{other}") };
            assert!(reason.contains("reads the formats 15 and 16: take what you need"), "{reason}");
        }
        fs::write(directory.join(IDENTITY), "x").unwrap();
        assert!(matches!(read_identity(&directory), Err(Problem::Damaged(_))));
    }

    /// Goal: no bit of the file can make one node another one.
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
            // The name of the checksum itself, or white space at the end.
            let is_same = matches!(&read, Ok(Some(found)) if *found == identity);
            let text = String::from_utf8_lossy(&wrong);
            assert!(is_same || matches!(read, Err(Problem::Damaged(_))), "{text}");
        }
    }

    #[test]
    fn what_is_set_aside_says_why() {
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
