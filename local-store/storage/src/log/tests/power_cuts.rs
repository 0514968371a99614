//! Tests with random histories of appends, syncs, truncations, faults and crashes: synced entries
//! exist, in order, and no entry appears that was not appended.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::disk::Fault;

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<usize>),
    Sync,
    /// Truncates the log up to an index, in percent of the range from the first to the next index.
    /// The index may be beyond the end.
    TruncatePrefix(u64),
    Shrink,
    /// The process ends; the page cache survives.
    Kill,
    PowerCut(u64),
    /// One of the next operations fails.
    Fail(u64, Fault),
}

fn step() -> impl Strategy<Value = Step> {
    let fault = prop_oneof![Just(Fault::Io), Just(Fault::OutOfSpace), Just(Fault::PowerOff)];
    prop_oneof![
        8 => prop::collection::vec(0_usize..900, 1..6).prop_map(Step::Append),
        6 => Just(Step::Sync),
        1 => (0_u64..130).prop_map(Step::TruncatePrefix),
        1 => Just(Step::Shrink),
        1 => Just(Step::Kill),
        2 => any::<u64>().prop_map(Step::PowerCut),
        2 => (0_u64..12, fault).prop_map(|(after, fault)| Step::Fail(after, fault)),
    ]
}

/// The expected content of the log.
struct Model {
    /// For each index, the entry that was last appended.
    entries: BTreeMap<u64, Entry>,
    /// The entries below this index are durable.
    synced_end: u64,
    /// The highest index at which the log may begin.
    first_max: u64,
    /// The first index of the log if a failed truncation beyond the end has taken effect, which is
    /// unknown.
    restart: Option<u64>,
    /// A counter that makes every payload unique.
    count: u64,
}

impl Model {
    fn group(&mut self, next_index: u64, sizes: &[usize]) -> Vec<Entry> {
        let mut group = Vec::new();
        for (index, size) in (next_index..).zip(sizes) {
            self.count += 1;
            let mut payload = self.count.to_le_bytes().repeat(size / 8 + 1);
            payload.truncate((*size).max(8));
            group.push(Entry { index, term: 1, payload: payload.into() });
        }
        group
    }

    /// Compares a log that was just opened with the model, and adopts the log's content.
    fn check(&mut self, log: &Log) -> Result<(), TestCaseError> {
        let (first, next) = (log.first_index(), log.next_index());
        let restarted = self.restart == Some(first) && next == first;
        if !restarted {
            prop_assert!(first <= self.first_max, "begins at {first}, not {}", self.first_max);
            prop_assert!(next >= self.synced_end, "ends at {next}, not {}", self.synced_end);
        }
        for entry in read_all(log) {
            prop_assert_eq!(Some(&entry), self.entries.get(&entry.index));
        }
        self.entries.split_off(&next);
        prop_assert_eq!(log.synced_end(), next);
        (self.synced_end, self.restart) = (next, None);
        self.first_max = first.max(self.first_max.min(next));
        Ok(())
    }

    /// Runs one change; returns `Ok(false)` if the log has stopped.
    fn change(&mut self, log: &mut Log, step: &Step) -> Result<bool, TestCaseError> {
        let (first, next) = (log.first_index(), log.next_index());
        let result = match step {
            Step::Append(sizes) => {
                let group = self.group(next, sizes);
                let result = log.append(&group);
                if !matches!(result, Err(Error::OutOfSpace(_))) {
                    self.entries.extend(group.into_iter().map(|entry| (entry.index, entry)));
                }
                result
            }
            Step::Sync => log.sync().inspect(|()| self.synced_end = next),
            Step::TruncatePrefix(percent) => {
                let upto = first + (next - first) * percent / 100;
                self.first_max = self.first_max.max((upto + 1).min(next));
                self.restart = (upto >= next).then_some(upto + 1);
                let result = log.truncate_prefix(upto);
                if result.is_ok()
                    && let Some(restart) = self.restart
                {
                    (self.first_max, self.synced_end) = (restart, restart);
                    self.entries.clear();
                }
                if !result.as_ref().is_err_and(Error::is_fatal) {
                    self.restart = None;
                }
                result
            }
            Step::Shrink => log.shrink(),
            Step::Kill | Step::PowerCut(_) | Step::Fail(..) => Ok(()),
        };
        match result {
            Ok(()) | Err(Error::OutOfSpace(_)) => Ok(true),
            Err(Error::Disk(_)) => Ok(false),
            Err(other) => Err(TestCaseError::fail(format!("{step:?}: {other}"))),
        }
    }
}

/// Opens the log in spite of pending faults. Cuts the power if a fault requires it.
fn reopen(disk: &SimulatedDisk, options: &Options, seed: u64) -> Log {
    for attempt in 0..20 {
        match Log::open(Arc::new(disk.clone()), options.clone()) {
            Ok(log) => return log,
            Err(Error::OutOfSpace(_)) => {}
            Err(Error::Disk(_)) => {
                disk.power_cut(seed.wrapping_add(attempt));
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the log never opens");
}

fn run(steps: &[Step], spares_max: usize, segment_bytes: u64) -> Result<(), TestCaseError> {
    let options = Options { spares_max, segment_bytes, ..options() };
    let disk = SimulatedDisk::new();
    let mut log = reopen(&disk, &options, 0);
    let mut model =
        Model { entries: BTreeMap::new(), synced_end: 1, first_max: 1, restart: None, count: 0 };
    for (number, step) in steps.iter().enumerate() {
        let going = model.change(&mut log, step)?;
        if let Step::Fail(after, fault) = step {
            disk.fail_at(disk.operations() + after, *fault);
        }
        if let Step::PowerCut(seed) = step {
            disk.power_cut(*seed);
        }
        if !going || matches!(step, Step::Kill | Step::PowerCut(_)) {
            drop(log);
            log = reopen(&disk, &options, number as u64);
            model.check(&log)?;
        } else {
            prop_assert!(log.synced_end() <= log.next_index());
            prop_assert!(log.synced_end() >= model.synced_end);
        }
    }
    drop(log);
    disk.power_cut(steps.len() as u64);
    model.check(&reopen(&disk, &options, 0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn synced_entries_survive_and_no_other_appear(
        steps in prop::collection::vec(step(), 1..60),
        spares_max in 0_usize..4,
        doublings in 1_u32..5,
    ) {
        run(&steps, spares_max, DATA_OFFSET << doublings)?;
    }
}
