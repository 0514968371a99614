//! An entry of the log, and its form there.
//!
//! What an entry does is in the machine.

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
    /// The proposer's time. The machine's time never goes back, even when this does.
    pub now: EpochMillis,
    /// What to do, in this order; each has its own reply. At most 99,999 positions altogether.
    pub commands: Vec<Command>,
}

impl Entry {
    /// Whether every command writes or deletes an item, and changes nothing else: what the machine
    /// knows of tables and locks is the same behind it.
    #[must_use]
    pub fn only_writes(&self) -> bool {
        self.commands.iter().all(Command::only_writes)
    }
}

/// A log entry that cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("log entry: {0}")]
pub struct EntryError(String);

impl EntryError {
    #[expect(clippy::needless_pass_by_value, reason = "it is used as a function for map_err")]
    fn encoding(error: postcard::Error) -> Self {
        Self(error.to_string())
    }
}

/// First byte of an entry's payload.
const ENTRY_VERSION: u8 = 2;

/// The payload of an entry as the log stores it.
///
/// # Errors
/// Only for a defect of a command's encoding.
pub fn encode_entry(entry: &Entry) -> Result<Vec<u8>, EntryError> {
    let mut encoder = EntryEncoder::with_room(0);
    encoder.push(&entry.commands, usize::MAX)?;
    let EncodedEntry { mut bytes, begins_at } = encoder.finish(entry.now)?;
    bytes.drain(..begins_at);
    Ok(bytes)
}

/// What a payload has before its commands at most: the version, and three numbers of at most ten bytes.
pub const ENTRY_HEAD_BYTES_MAX: usize = 1 + 10 + 10 + 10;

/// Builds a payload command by command, so that its size is known while commands are gathered.
///
/// A delta counts as many bytes as the whole command would take, so the bound also holds for what the
/// commands of an entry take in memory.
#[derive(Debug)]
pub struct EntryEncoder {
    /// Room for the head, and the commands.
    bytes: Vec<u8>,
    count: u64,
    /// What the commands count.
    counted: usize,
}

/// A payload that was built.
#[derive(Debug)]
pub struct EncodedEntry {
    /// The payload, behind some bytes that do not belong to it.
    pub bytes: Vec<u8>,
    /// Where it begins.
    pub begins_at: usize,
}

impl EntryEncoder {
    /// For commands of about so many bytes; more find room, too.
    #[must_use]
    pub fn with_room(bytes: usize) -> Self {
        let mut room = Vec::with_capacity(ENTRY_HEAD_BYTES_MAX + bytes);
        room.resize(ENTRY_HEAD_BYTES_MAX, 0);
        Self { bytes: room, count: 0, counted: 0 }
    }

    /// Adds the commands of a request and gives what all commands so far count, in bytes. `None` if these
    /// count more than `bytes_max` together: then none of them is added, and the rest of them is
    /// not encoded.
    ///
    /// # Errors
    /// Only for a defect of a command's encoding; the encoder is then of no more use.
    pub fn push(
        &mut self,
        commands: &[Command],
        bytes_max: usize,
    ) -> Result<Option<usize>, EntryError> {
        let (begin, mut counted) = (self.bytes.len(), 0);
        // The last write that is stored whole, and its size.
        let mut model: Option<(&Write, usize)> = None;
        for command in commands {
            let before = self.bytes.len();
            let end = before.saturating_add(bytes_max - counted);
            let encoding = CommandEncoding::relative_to(command, model.map(|(write, _)| write));
            let room = Room { bytes: &mut self.bytes, end };
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

    /// The payload: the version, what the commands count, the time, the number of commands, the
    /// commands.
    ///
    /// # Errors
    /// Only for a defect of the encoding.
    pub fn finish(self, now: EpochMillis) -> Result<EncodedEntry, EntryError> {
        let Self { mut bytes, count, counted: counts } = self;
        let head = postcard::to_extend(&(counts, now, count), vec![ENTRY_VERSION])
            .map_err(EntryError::encoding)?;
        let too_long = || EntryError(format!("its head takes {} bytes", head.len()));
        let begins_at = ENTRY_HEAD_BYTES_MAX.checked_sub(head.len()).ok_or_else(too_long)?;
        let room = bytes.get_mut(begins_at..ENTRY_HEAD_BYTES_MAX).ok_or_else(too_long)?;
        room.copy_from_slice(&head);
        Ok(EncodedEntry { bytes, begins_at })
    }
}

/// Bytes that become more up to an end.
struct Room<'b> {
    bytes: &'b mut Vec<u8>,
    end: usize,
}

impl Flavor for Room<'_> {
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

/// What the commands of an entry count, see [`EntryEncoder`]. `None` if the payload is damaged or of an
/// unknown version.
#[must_use]
pub fn entry_counts(payload: &[u8]) -> Option<usize> {
    let (_, rest) = payload.split_first().filter(|(version, _)| **version == ENTRY_VERSION)?;
    postcard::take_from_bytes(rest).ok().map(|(counts, _)| counts)
}

/// Reads what [`encode_entry`] wrote.
///
/// # Errors
/// When the payload is damaged or of an unknown version.
pub fn decode_entry(payload: &[u8]) -> Result<Entry, EntryError> {
    match payload.split_first() {
        Some((&ENTRY_VERSION, rest)) => {
            let (_, now, encodings): (usize, _, _) =
                postcard::from_bytes(rest).map_err(EntryError::encoding)?;
            let nothing = || EntryError("a command is like a write that is not there".to_owned());
            Ok(Entry { now, commands: decode_commands(encodings).ok_or_else(nothing)? })
        }
        first => Err(EntryError(format!("unknown version: {:?}", first.map(|(byte, _)| byte)))),
    }
}
