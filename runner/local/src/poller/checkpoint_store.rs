//! Stores the checkpoints of mappings in files, one for each mapping and stream label.
//!
//! The mapping decides when a checkpoint advances. A file is replaced atomically, so it always has
//! one complete state, either the old or the new state.
//!
//! `<folder>/<mapping>/<stream label>.json`, one JSON object in UTF-8:
//!
//! ```text
//! { "format": 1,
//!   "xxh3": "<XXH3 of 128 bits of the text of body, in hex>",
//!   "body": { "mapping": "<id>", "stream": "<arn>", "created_ms": 0,
//!             "starting_position": "TRIM_HORIZON" | "LATEST",
//!             "shards": { "<shard id>": { "parent": "<shard id>" | null,
//!                                         "position": "trim_horizon" | "latest"
//!                                                   | {"after": "<sequence number>"}
//!                                                   | {"closed": {"at_ms": 0}},
//!       (only if one is open)             "window": { "start_s": 0, "end_s": 60,
//!                                                     "state": <any JSON> } } } } }
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_128;

use mapping::{
    CheckpointPosition, Checkpoints, OpenWindow, SequenceNumber, Settings, ShardCheckpoint,
    ShardId, StartingPosition, Window,
};

const FORMAT: u32 = 1;

/// The characters that a file name escapes.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
/// The maximum size of a checkpoint file; a larger file is not a checkpoint file. 10,000 shards need
/// about 2 MB. With tumbling windows, each open shard can need 6 MB, the maximum response of a function.
const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// The folder with the checkpoints of all mappings.
#[derive(Debug, Clone)]
pub struct CheckpointStore {
    folder: PathBuf,
}

/// The reason why checkpoints cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file operation failed.
    #[error("cannot {action} the checkpoint file `{}`: {source}; make the folder writable and try again", path.display())]
    Io {
        /// The action that failed, such as `read` or `write`.
        action: &'static str,
        /// The checkpoint file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file has no valid checkpoints of this mapping on this stream.
    #[error(
        "the checkpoint file `{}` is damaged: {reason}; restore it from a backup, or delete it to \
         restart the mapping at its StartingPosition, which redelivers records",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason why the file is damaged.
        reason: String,
    },
    /// The file was written by a later version.
    #[error(
        "the checkpoint file `{}` has format {format}, but this version of weir supports format {FORMAT}; \
         use the version of weir that wrote the file",
        path.display()
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        format: u32,
    },
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    format: u32,
    xxh3: String,
    body: Box<RawValue>,
}

#[derive(Serialize, Deserialize)]
struct Body {
    mapping: String,
    stream: String,
    created_ms: i64,
    /// The mapping's `StartingPosition`; missing in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    starting_position: Option<StartingPosition>,
    shards: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    parent: Option<String>,
    position: Position,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<WindowEntry>,
}

#[derive(Serialize, Deserialize)]
struct WindowEntry {
    start_s: i64,
    end_s: i64,
    state: Box<RawValue>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Position {
    TrimHorizon,
    Latest,
    After(String),
    Closed { at_ms: i64 },
}

impl CheckpointStore {
    /// Returns the store in this folder. The folder need not exist yet.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the path of the checkpoint file of a mapping for the stream in its settings.
    #[must_use]
    pub fn path(&self, settings: &Settings) -> PathBuf {
        let file = format!("{}.json", file_name(settings.stream_label()));
        self.folder.join(file_name(&settings.mapping_id)).join(file)
    }

    /// Returns the checkpoints of a mapping; `None` if the mapping has no checkpoints on this stream
    /// yet. Ensures that checkpoints can be written later, and removes the remains of an interrupted
    /// write.
    ///
    /// # Errors
    /// The folder cannot be created, or the file is unreadable, damaged, of another mapping or stream, or of
    /// a later version.
    pub fn load(&self, settings: &Settings) -> Result<Option<Checkpoints>, CheckpointError> {
        let path = self.path(settings);
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).map_err(io_error("create the folder of", &path))?;
        sync_folders(folder, &self.folder).map_err(io_error("sync the folder of", &path))?;
        remove_leftovers(&path).map_err(io_error("remove the temporary files of", &path))?;
        let bytes = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("read", &path)(error)),
            Ok(metadata) if metadata.len() > FILE_BYTES_MAX => {
                let reason = format!("the file has {} bytes", metadata.len());
                return Err(CheckpointError::Damaged { path, reason });
            }
            Ok(_) => fs::read(&path).map_err(io_error("read", &path))?,
        };
        decode(&bytes, settings, &path).map(Some)
    }

    /// Replaces the checkpoints of a mapping, durably. Blocks.
    ///
    /// # Errors
    /// The file could not be written. The previous checkpoints are kept.
    pub fn save(
        &self,
        settings: &Settings,
        checkpoints: &Checkpoints,
    ) -> Result<(), CheckpointError> {
        let path = self.path(settings);
        let bytes = encode(settings, checkpoints)
            .map_err(|error| io_error("write", &path)(io::Error::other(error)))?;
        replace(&path, &bytes).map_err(io_error("write", &path))
    }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
    let path = path.to_owned();
    move |source| CheckpointError::Io { action, path, source }
}

/// Returns a file name that every file system accepts. Different texts result in different names.
fn file_name(text: &str) -> String {
    let name = utf8_percent_encode(text, ESCAPED).to_string();
    match name.strip_prefix('.') {
        Some(rest) => format!("%2E{rest}"),
        None => name,
    }
}

fn encode(settings: &Settings, checkpoints: &Checkpoints) -> Result<Vec<u8>, serde_json::Error> {
    let mut shards = BTreeMap::new();
    for (id, checkpoint) in &checkpoints.shards {
        let position = match &checkpoint.position {
            CheckpointPosition::TrimHorizon => Position::TrimHorizon,
            CheckpointPosition::Latest => Position::Latest,
            CheckpointPosition::After(sequence) => Position::After(sequence.as_str().to_owned()),
            CheckpointPosition::Closed { at_ms } => Position::Closed { at_ms: *at_ms },
        };
        let parent = checkpoint.parent.as_ref().map(|parent| parent.as_str().to_owned());
        let window = checkpoint.window.as_ref().map(|open| {
            let state = RawValue::from_string(open.state.to_string())?;
            let Window { start_s, end_s } = open.window;
            Ok::<_, serde_json::Error>(WindowEntry { start_s, end_s, state })
        });
        let window = window.transpose()?;
        shards.insert(id.as_str().to_owned(), Entry { parent, position, window });
    }
    let body = Body {
        mapping: settings.mapping_id.clone(),
        stream: settings.stream_arn.clone(),
        created_ms: checkpoints.created_ms,
        starting_position: Some(settings.starting_position),
        shards,
    };
    let body = serde_json::value::to_raw_value(&body)?;
    let envelope = Envelope { format: FORMAT, xxh3: digest(body.get()), body };
    serde_json::to_vec(&envelope)
}

fn decode(bytes: &[u8], settings: &Settings, path: &Path) -> Result<Checkpoints, CheckpointError> {
    let damaged = |reason: String| CheckpointError::Damaged { path: path.to_owned(), reason };
    let envelope: Envelope =
        serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    if envelope.format != FORMAT {
        let (path, format) = (path.to_owned(), envelope.format);
        return Err(CheckpointError::UnknownFormat { path, format });
    }
    let found = digest(envelope.body.get());
    if envelope.xxh3 != found {
        return Err(damaged(format!(
            "the digest of the file's body is {found}, but should be {}",
            envelope.xxh3
        )));
    }
    let body: Body =
        serde_json::from_str(envelope.body.get()).map_err(|error| damaged(error.to_string()))?;
    if body.mapping != settings.mapping_id || body.stream != settings.stream_arn {
        return Err(damaged(format!(
            "the file belongs to mapping `{}` on stream `{}`, not to mapping `{}` on stream `{}`",
            body.mapping, body.stream, settings.mapping_id, settings.stream_arn
        )));
    }
    // On AWS the property cannot be changed: CloudFormation replaces the mapping instead.
    if body.starting_position.is_some_and(|position| position != settings.starting_position) {
        tracing::warn!(
            "mapping `{}`: StartingPosition changed. On AWS this replaces the mapping; on this machine the mapping resumes from its checkpoint. To start over, delete `{}`",
            settings.mapping_id,
            path.display()
        );
    }
    let mut shards = BTreeMap::new();
    for (id, entry) in body.shards {
        let position = match entry.position {
            Position::TrimHorizon => CheckpointPosition::TrimHorizon,
            Position::Latest => CheckpointPosition::Latest,
            Position::Closed { at_ms } => CheckpointPosition::Closed { at_ms },
            Position::After(text) => {
                let sequence = SequenceNumber::parse(&text);
                CheckpointPosition::After(sequence.map_err(|error| damaged(error.to_string()))?)
            }
        };
        let parent = entry.parent.as_deref().map(ShardId::new);
        let window = entry.window.map(|entry| OpenWindow {
            window: Window { start_s: entry.start_s, end_s: entry.end_s },
            state: entry.state.get().into(),
        });
        shards.insert(ShardId::new(&id), ShardCheckpoint { parent, position, window });
    }
    Ok(Checkpoints { created_ms: body.created_ms, shards })
}

fn digest(text: &str) -> String {
    format!("{:032x}", xxh3_128(text.as_bytes()))
}

/// Writes a temporary file and renames it over the file. Both the bytes and the name are synced, so that
/// after a power failure the path has either the old or the new file.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{number}.new", std::process::id()));
    let beside = PathBuf::from(name);
    let written = write_and_rename(&beside, path, bytes);
    if written.is_err() {
        // The caller gets the error of the write. If this removal fails, too, the next start removes the
        // temporary file.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn write_and_rename(beside: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Syncs the folder and its parents up to the store's folder, so that the whole path survives a power
/// failure. The parent of the store's folder may be unreadable, so it is not synced.
fn sync_folders(folder: &Path, store: &Path) -> io::Result<()> {
    for folder in folder.ancestors().take_while(|folder| folder.starts_with(store)) {
        File::open(folder)?.sync_all()?;
    }
    if let Some(around) = store.parent().and_then(|around| File::open(around).ok()) {
        around.sync_all()?;
    }
    Ok(())
}

fn remove_leftovers(path: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) =
        (path.parent(), path.file_name().and_then(|name| name.to_str()))
    else {
        return Ok(());
    };
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.file_name();
        let leftover = found.to_str().and_then(|found| found.strip_prefix(name));
        if leftover.is_some_and(|rest| rest.starts_with('.') && rest.ends_with(".new")) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(label: &str) -> Settings {
        Settings::new(
            "ArchiveFunctionStream",
            "arn:function",
            &format!("arn:table/t/stream/{label}"),
        )
    }

    fn some_checkpoints() -> Checkpoints {
        let entry = |parent: Option<&str>, position| ShardCheckpoint {
            parent: parent.map(ShardId::new),
            position,
            window: None,
        };
        let after = SequenceNumber::parse("000000000000000000042").unwrap();
        let shards = BTreeMap::from([
            (ShardId::new("s1"), entry(None, CheckpointPosition::Closed { at_ms: 12 })),
            (ShardId::new("s2"), entry(Some("s1"), CheckpointPosition::After(after))),
            (ShardId::new("s3"), entry(Some("s1"), CheckpointPosition::TrimHorizon)),
            (ShardId::new("s4"), entry(None, CheckpointPosition::Latest)),
        ]);
        let mut shards = shards;
        shards.get_mut(&ShardId::new("s2")).unwrap().window = Some(OpenWindow {
            window: Window { start_s: 60, end_s: 120 },
            state: r#"{"a":"ü","b":[1.50]}"#.into(),
        });
        Checkpoints { created_ms: 1_573_690_399_717, shards }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::new(folder.path().join("a/b"));
        let settings = settings("2019-11-14T00:04:06.388");
        assert_eq!(store.load(&settings).unwrap(), None);
        let checkpoints = some_checkpoints();
        store.save(&settings, &checkpoints).unwrap();
        assert_eq!(store.load(&settings).unwrap(), Some(checkpoints.clone()));
        let later = Checkpoints { created_ms: 1, ..checkpoints };
        store.save(&settings, &later).unwrap();
        assert_eq!(store.load(&settings).unwrap(), Some(later));
        let path = store.path(&settings);
        assert!(path.ends_with("ArchiveFunctionStream/2019-11-14T00%3A04%3A06.388.json"));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_stream_that_was_enabled_again_has_other_checkpoints() {
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::new(folder.path());
        store.save_new(&settings("one"));
        assert_eq!(store.load(&settings("two")).unwrap(), None);
        assert!(store.load(&settings("one")).unwrap().is_some());
    }

    impl CheckpointStore {
        fn save_new(&self, settings: &Settings) {
            self.load(settings).unwrap();
            self.save(settings, &some_checkpoints()).unwrap();
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::new(folder.path());
        let settings = settings("one");
        store.save_new(&settings);
        let path = store.path(&settings);
        let good = fs::read(&path).unwrap();
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1;
            fs::write(&path, &bad).unwrap();
            let error = store.load(&settings).unwrap_err().to_string();
            assert!(error.contains("one.json"), "{error}");
        }
        for length in 0..good.len() {
            fs::write(&path, &good[..length]).unwrap();
            let error = store.load(&settings).unwrap_err();
            assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains("delete it"), "{error}");
        }
    }

    #[test]
    fn a_file_of_another_stream_or_a_later_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::new(folder.path());
        let (mine, other) = (settings("one"), settings("two"));
        store.save_new(&mine);
        fs::copy(store.path(&mine), store.path(&other)).unwrap();
        let error = store.load(&other).unwrap_err().to_string();
        assert!(error.contains("belongs to mapping"), "{error}");
        fs::write(store.path(&mine), r#"{"format":2,"xxh3":"","body":{}}"#).unwrap();
        let error = store.load(&mine).unwrap_err();
        assert!(matches!(error, CheckpointError::UnknownFormat { format: 2, .. }), "{error}");
    }

    #[test]
    fn an_interrupted_write_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::new(folder.path());
        let settings = settings("one");
        store.save_new(&settings);
        let path = store.path(&settings);
        let leftover = path.with_file_name("one.json.4711-3.new");
        fs::write(&leftover, "{").unwrap();
        assert_eq!(store.load(&settings).unwrap(), Some(some_checkpoints()));
        assert!(!leftover.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = CheckpointStore::new(&file).load(&settings("one")).unwrap_err();
        assert!(matches!(error, CheckpointError::Io { .. }), "{error}");
    }
}
