//! Random histories of a node's log with two groups, under power cuts at any disk operation, also
//! during a recovery. The log is one ordered stream. Therefore recovery must find the result of a
//! prefix of the history, and the prefix must include everything that was reported as durable.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use openraft::impls::leader_id_std::LeaderId;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::type_config::TypeConfigExt;

use super::*;
use crate::OnFatal;
use crate::log_id::{LogId, log_id};
use crate::node::tests::TaskWorker;
use crate::types::{Payload, Vote};
use storage::disk::{Disk, Fault, SimulatedDisk, SplitMix64};
use storage::log::Options;

const ARCS: [ArcId; 2] = [ArcId(0), ArcId(7)];
const SEEDS: u64 = 150;
/// Number of power cuts in one history.
const CUTS: usize = 12;
/// The maximum number of disk operations between two power cuts.
const OPERATIONS_MAX: usize = 60;

/// The content of one group's log: its vote, its last purge, and the index, term and body of each
/// entry.
#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: Vec<(u64, u64, Bytes)>,
}

impl Said {
    fn next(&self) -> u64 {
        let last = self.entries.last().map(|(index, ..)| *index);
        last.or(self.purged.map(|at| at.index)).map_or(0, |index| index + 1)
    }

    fn id(&self, index: u64) -> LogId {
        let found = self.entries.iter().find(|(at, ..)| *at == index).unwrap();
        log_id(found.1, index)
    }
}

async fn read(log: &NodeLog) -> [Said; 2] {
    let mut all = [Said::default(), Said::default()];
    for (said, arc) in all.iter_mut().zip(ARCS) {
        let mut group = log.group(arc);
        said.vote = group.read_vote().await.unwrap();
        said.purged = group.get_log_state().await.unwrap().last_purged_log_id;
        for entry in group.try_get_log_entries(0..).await.unwrap() {
            let EntryPayload::Normal(body) = entry.payload else { panic!("{entry:?}") };
            let body = body.bytes().clone();
            said.entries.push((entry.log_id.index, entry.log_id.leader_id.term, body));
        }
    }
    all
}

/// A history, and all states that the log has had since the last recovery.
struct History {
    random: SplitMix64,
    states: Vec<[Said; 2]>,
    /// The index of the first state that is a valid result of a recovery.
    durable: usize,
    term: u64,
}

impl History {
    fn now(&self) -> &[Said; 2] {
        self.states.last().unwrap()
    }

    fn change(&mut self, place: usize, change: impl FnOnce(&mut Said)) {
        let mut next = self.now().clone();
        change(&mut next[place]);
        self.states.push(next);
    }

    /// Runs one step of the history. Returns whether the log has not failed.
    async fn step(&mut self, log: &NodeLog) -> bool {
        let place = self.random.up_to(1);
        let mut group = log.group(ARCS[place]);
        self.term += 1;
        match self.random.up_to(9) {
            0..2 => {
                let leader_id = LeaderId { term: self.term, voted_for: 2 };
                let vote = openraft::Vote { leader_id, committed: false };
                self.change(place, |said| said.vote = Some(vote));
                if group.save_vote(&vote).await.is_err() {
                    return false;
                }
                self.durable = self.states.len() - 1;
                true
            }
            2..7 => self.append(place, group).await,
            7 => {
                let (first, next) = (self.first(place), self.now()[place].next());
                if next <= first {
                    return true;
                }
                let from = first + self.random.next_u64() % (next - first);
                let last = match from.checked_sub(1) {
                    Some(last) if last >= first => Some(self.now()[place].id(last)),
                    _ => self.now()[place].purged,
                };
                self.change(place, |said| said.entries.retain(|(index, ..)| *index < from));
                group.truncate_after(last).await.is_ok()
            }
            _ => {
                let (first, next) = (self.first(place), self.now()[place].next());
                if next <= first {
                    return true;
                }
                let upto = first + self.random.next_u64() % (next - first);
                let at = self.now()[place].id(upto);
                self.change(place, |said| {
                    said.entries.retain(|(index, ..)| *index > upto);
                    said.purged = Some(at);
                });
                group.purge(at).await.is_ok()
            }
        }
    }

    fn first(&self, place: usize) -> u64 {
        self.now()[place].purged.map_or(0, |at| at.index + 1)
    }

    async fn append(&mut self, place: usize, mut group: GroupLog) -> bool {
        let mut entries = Vec::new();
        for _ in 0..=self.random.up_to(3) {
            let index = self.now()[place].next();
            let (term, byte) = (self.term, u8::try_from(self.random.up_to(255)).unwrap());
            let body = Bytes::from(vec![byte; self.random.up_to(3_000)]);
            let payload = EntryPayload::Normal(Payload::new(body.clone()));
            entries.push(Entry::new(log_id(term, index), payload));
            self.change(place, |said| said.entries.push((index, term, body)));
        }
        if self.random.chance(40) {
            return group.append(entries, IOFlushed::noop()).await.is_ok();
        }
        let (sender, durable) = TypeConfig::oneshot();
        if group.append(entries, IOFlushed::signal(sender)).await.is_err() {
            return false;
        }
        if !matches!(durable.await, Ok(Ok(()))) {
            return false;
        }
        self.durable = self.states.len() - 1;
        true
    }
}

fn open(disk: &SimulatedDisk) -> Result<NodeLog, log::Error> {
    let on_fatal: OnFatal = Arc::new(|_| {});
    let worker = Arc::new(TaskWorker::start(Duration::from_micros(100)));
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = Options { segment_bytes: 16 * 1024, ..Options::default() };
    NodeLog::open(Log::open(disk, options)?, worker, on_fatal)
}

/// Cuts the power until the log opens again.
async fn recover(disk: &SimulatedDisk, random: &mut SplitMix64) -> NodeLog {
    loop {
        // The disk is powered off while pending operations of the earlier process run, so that they
        // fail.
        disk.power_off();
        tokio::time::sleep(Duration::from_secs(5)).await;
        disk.power_cut(random.next_u64());
        if random.chance(30) {
            disk.fail_at(disk.operations() + random.up_to(6) as u64, Fault::PowerOff);
        }
        match open(disk) {
            Ok(log) => return log,
            Err(error) => assert!(error.to_string().contains("power"), "{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn recovery_finds_the_result_of_a_prefix_of_the_history() {
    let mut cut_short = 0;
    for seed in 0..SEEDS {
        let disk = SimulatedDisk::new();
        let mut history = History {
            random: SplitMix64::new(seed),
            states: vec![Default::default()],
            durable: 0,
            term: 0,
        };
        let mut node = open(&disk).unwrap();
        for cut in 0..CUTS {
            let after = history.random.up_to(OPERATIONS_MAX) as u64;
            disk.fail_at(disk.operations() + after, Fault::PowerOff);
            for _ in 0..OPERATIONS_MAX {
                if !history.step(&node).await {
                    break;
                }
            }
            drop(node);
            node = recover(&disk, &mut history.random).await;
            let found = read(&node).await;
            let possible = &history.states[history.durable..];
            assert!(
                possible.contains(&found),
                "seed {seed}, cut {cut}: found {found:#?}; the last of {} possible states is {:#?}",
                possible.len(),
                possible.last()
            );
            cut_short += u64::from(found != *history.now());
            // The entries that a recovery found are durable.
            (history.states, history.durable) = (vec![found], 0);
        }
    }
    assert!(cut_short > SEEDS, "only {cut_short} cuts lost records");
}
