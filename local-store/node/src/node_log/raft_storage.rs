//! The log of one group, as the log storage of the consensus library.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};

use futures::{Stream, TryStreamExt, stream};
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use partition::mutation::{self, Mutation};

use super::record::Record;
use super::{Completion, NodeLog, WAITING_BYTES_MAX};
use crate::log_id::LogId;
use crate::ring::ArcId;
use crate::types::{Entry, TypeConfig, Vote};

/// The number of bytes that replication and applying read at a time: a few large entries.
const READ_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The maximum number of entries that are read at a time to be applied. Each entry is looked up
/// before the read, so this number bounds the look-ups.
const READ_ENTRIES_MAX: u64 = 1024;

/// The log of one group, and its reader.
#[derive(Clone)]
pub struct GroupLog {
    log: NodeLog,
    arc: ArcId,
}

impl GroupLog {
    pub(super) fn new(log: NodeLog, arc: ArcId) -> Self {
        Self { log, arc }
    }
}

/// Returns the first index of a range, and its end (exclusive).
fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(index) => *index,
        Bound::Excluded(index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(index) => index.saturating_add(1),
        Bound::Excluded(index) => *index,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

impl RaftLogReader<TypeConfig> for GroupLog {
    /// Reads the entries in parts. A starting node applies the entries that its state lacks. These
    /// entries may be most of the log, and must not all be in memory at the same time.
    async fn entries_stream<R>(
        &mut self,
        range: R,
    ) -> impl Stream<Item = Result<Entry, io::Error>> + Send
    where
        R: RangeBounds<u64> + Clone + Debug + Send,
    {
        let (log, arc, (from, to)) = (self.log.clone(), self.arc, bounds(&range));
        let parts = stream::try_unfold(from, move |from| {
            let log = log.clone();
            async move {
                let end = to.min(from.saturating_add(READ_ENTRIES_MAX));
                let entries = log.read(arc, from, end, READ_BYTES_MAX).await?;
                let next = entries.last().map(|last| last.log_id.index + 1);
                Ok::<_, io::Error>(next.map(|next| (entries, next)))
            }
        });
        let each = |entries: Vec<Entry>| stream::iter(entries.into_iter().map(Ok));
        parts.map_ok(each).try_flatten()
    }

    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, io::Error> {
        let (from, to) = bounds(&range);
        self.log.read(self.arc, from, to, usize::MAX).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        self.log.read(self.arc, start, end, READ_BYTES_MAX).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        let state = self.log.shared.lock();
        Ok(state.groups.get(&self.arc).and_then(|group| group.vote))
    }
}

impl RaftLogStorage<TypeConfig> for GroupLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let state = self.log.shared.lock();
        let group = state.groups.get(&self.arc);
        Ok(LogState {
            last_purged_log_id: group.and_then(|group| group.purged),
            last_log_id: group.and_then(super::Group::last_log_id),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        if mutation::is_active(Mutation::ForgetVote) {
            return Ok(());
        }
        self.log.write_durably(self.arc, [Record::Vote(*vote)]).await
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: IOFlushed<TypeConfig>,
    ) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let records = entries.into_iter().map(Record::Entry);
        let waiting = self.log.write(self.arc, records, Some(Completion::Flushed(callback)))?;
        if waiting > WAITING_BYTES_MAX {
            self.log.write_durably(self.arc, []).await?;
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let from = last_log_id.map_or(0, |at| at.index + 1);
        self.log.write(self.arc, [Record::Cut(from)], None).map(|_| ())
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.log.purge(self.arc, upto)
    }
}
