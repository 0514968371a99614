//! A log entry and its encoding.
//!
//! The module `machine` applies entries.

pub(crate) mod sequence;
#[cfg(test)]
mod tests;

use model::EpochMillis;
use postcard::ser_flavors::Flavor;
use thiserror::Error;

use crate::command::encoding::{CommandEncoding, count_delta, decode_commands};
use crate::command::{Command, Write};

/// One entry of the log: commands that were ready at the same time.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The proposer's time. The state machine's time never decreases, even if the proposer's time
    /// does.
    pub now: EpochMillis,
    /// The commands, in order of application; each has its own reply. Together they take at most
    /// 99,999 positions: see [`Command::positions`].
    pub commands: Vec<Command>,
}

impl Entry {
    /// Returns whether every command only writes or deletes an item. Such an entry leaves the state
    /// machine's tables and locks unchanged.
    #[must_use]
    pub fn only_writes(&self) -> bool {
        self.commands.iter().all(Command::only_writes)
    }
}

/// The reason why a log entry cannot be encoded or decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid log entry: {0}")]
pub struct EntryError(String);

impl EntryError {
    #[expect(clippy::needless_pass_by_value, reason = "it is used as a function for map_err")]
    fn encoding(error: postcard::Error) -> Self {
        Self(error.to_string())
    }
}

/// The version byte, which is the first byte of an entry's payload.
const ENTRY_VERSION: u8 = 2;

/// Encodes an entry as the log's payload.
///
/// # Errors
/// When a command cannot be encoded, which is a bug.
pub fn encode_entry(entry: &Entry) -> Result<Vec<u8>, EntryError> {
    let mut encoder = EntryEncoder::with_room(0);
    encoder.push(&entry.commands, usize::MAX)?;
    let EncodedEntry { mut bytes, begins_at } = encoder.finish(entry.now)?;
    bytes.drain(..begins_at);
    Ok(bytes)
}

/// The maximum size of the head of a payload, in bytes: the version, and three numbers of at most
/// ten bytes each.
pub const ENTRY_HEAD_BYTES_MAX: usize = 1 + 10 + 10 + 10;

/// Builds a payload command by command, so that the caller knows its size while it gathers
/// commands.
///
/// A delta counts as many bytes as its command would take in full. Therefore the bound on the
/// counted bytes also limits the memory of the decoded commands.
#[derive(Debug)]
pub struct EntryEncoder {
    /// Reserved space for the head, then the encoded commands.
    bytes: Vec<u8>,
    count: u64,
    /// The sum of the counted bytes of the commands that were added.
    counted: usize,
}

/// A finished payload.
#[derive(Debug)]
pub struct EncodedEntry {
    /// A buffer that contains the payload after some unused bytes.
    pub bytes: Vec<u8>,
    /// The offset of the payload in `bytes`.
    pub begins_at: usize,
}

impl EntryEncoder {
    /// Creates an encoder with capacity for about `bytes` bytes of commands. More capacity is
    /// allocated if needed.
    #[must_use]
    pub fn with_room(bytes: usize) -> Self {
        let mut room = Vec::with_capacity(ENTRY_HEAD_BYTES_MAX + bytes);
        room.resize(ENTRY_HEAD_BYTES_MAX, 0);
        Self { bytes: room, count: 0, counted: 0 }
    }

    /// Adds the commands of a request, and returns the counted bytes of all added commands. If the
    /// request's own commands count more than `bytes_max`, adds none of them and returns `None`.
    ///
    /// # Errors
    /// When a command cannot be encoded, which is a bug; the encoder is then unusable.
    pub fn push(
        &mut self,
        commands: &[Command],
        bytes_max: usize,
    ) -> Result<Option<usize>, EntryError> {
        let (begin, mut counted) = (self.bytes.len(), 0);
        // The base for deltas: the last write that was stored in full, and its size.
        let mut model: Option<(&Write, usize)> = None;
        for command in commands {
            let before = self.bytes.len();
            let end = before.saturating_add(bytes_max - counted);
            let encoding = CommandEncoding::relative_to(command, model.map(|(write, _)| write));
            let room = BoundedBuffer { bytes: &mut self.bytes, end };
            let fits = match postcard::serialize_with_flavor(&encoding, room) {
                Ok(()) => true,
                Err(postcard::Error::SerializeBufferFull) => false,
                Err(error) => return Err(EntryError::encoding(error)),
            };
            let size = self.bytes.len() - before;
            counted += match (&encoding, command, model) {
                (CommandEncoding::Delta { values, .. }, _, Some((write, of_model))) => {
                    count_delta(write, of_model, values, size)
                }
                (_, Command::Write(write), _) => {
                    model = Some((&**write, size));
                    size
                }
                _ => size,
            };
            if !fits || counted > bytes_max {
                self.bytes.truncate(begin);
                return Ok(None);
            }
        }
        self.count += commands.len() as u64;
        self.counted += counted;
        Ok(Some(self.counted))
    }

    /// Returns the payload: the version, the counted bytes, the time, the number of commands, and
    /// the commands.
    ///
    /// # Errors
    /// When the head cannot be encoded, which is a bug.
    pub fn finish(self, now: EpochMillis) -> Result<EncodedEntry, EntryError> {
        let Self { mut bytes, count, counted: counts } = self;
        let head = postcard::to_extend(&(counts, now, count), vec![ENTRY_VERSION])
            .map_err(EntryError::encoding)?;
        let too_long = || EntryError(format!("the head is too long: {} bytes", head.len()));
        let begins_at = ENTRY_HEAD_BYTES_MAX.checked_sub(head.len()).ok_or_else(too_long)?;
        let room = bytes.get_mut(begins_at..ENTRY_HEAD_BYTES_MAX).ok_or_else(too_long)?;
        room.copy_from_slice(&head);
        Ok(EncodedEntry { bytes, begins_at })
    }
}

/// A buffer that may grow up to `end` bytes.
struct BoundedBuffer<'b> {
    bytes: &'b mut Vec<u8>,
    end: usize,
}

impl Flavor for BoundedBuffer<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        if data.len() > self.end.saturating_sub(self.bytes.len()) {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        if self.bytes.len() >= self.end {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.bytes.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Returns the counted bytes of an entry's commands, see [`EntryEncoder`]; `None` if the payload is
/// damaged or of an unknown version.
#[must_use]
pub fn entry_counts(payload: &[u8]) -> Option<usize> {
    let (_, rest) = payload.split_first().filter(|(version, _)| **version == ENTRY_VERSION)?;
    postcard::take_from_bytes(rest).ok().map(|(counts, _)| counts)
}

/// Decodes a payload of [`encode_entry`].
///
/// # Errors
/// When the payload is damaged or of an unknown version.
pub fn decode_entry(payload: &[u8]) -> Result<Entry, EntryError> {
    match payload.split_first() {
        Some((&ENTRY_VERSION, rest)) => {
            let (_, now, encodings): (usize, _, _) =
                postcard::from_bytes(rest).map_err(EntryError::encoding)?;
            let nothing = || EntryError("a delta has no preceding write".to_owned());
            Ok(Entry { now, commands: decode_commands(encodings).ok_or_else(nothing)? })
        }
        first => Err(EntryError(format!("unknown version: {:?}", first.map(|(byte, _)| byte)))),
    }
}
