//! Round trips: an entry that is written as an item and read again is equal to the original.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use rules::migration::{Direction, Phase};

use crate::task::Copied;
use crate::*;

/// Writes an entry as an item and reads it again.
fn read_back<E: Entry>(entry: &E) -> E {
    let item: serde_dynamo::Item = serde_dynamo::to_item(entry).unwrap();
    serde_dynamo::from_item(item).unwrap()
}

fn text() -> impl Strategy<Value = String> {
    ".{0,12}"
}

fn phase() -> impl Strategy<Value = Phase> {
    proptest::sample::select(Phase::ALL.to_vec())
}

fn direction() -> impl Strategy<Value = Direction> {
    proptest::sample::select(vec![Direction::Forward, Direction::Reverse])
}

fn side() -> impl Strategy<Value = Side> {
    proptest::sample::select(vec![Side::Source, Side::Target, Side::None])
}

fn work() -> impl Strategy<Value = Work> {
    use Work::{Backfill, CheckSource, CheckTarget, Touch, Unmark};
    proptest::sample::select(vec![Backfill, Touch, CheckSource, CheckTarget, Unmark])
}

fn counts() -> impl Strategy<Value = BTreeMap<String, u64>> {
    btree_map(text(), any::<u64>(), 0..4)
}

fn verified() -> impl Strategy<Value = Verified> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<i64>());
    numbers.prop_map(|(run, differences, refused, compared, at)| Verified {
        run,
        differences,
        refused,
        compared,
        at,
    })
}

prop_compose! {
    fn state()(
        (migration, holder, fingerprint) in (text(), option::of(text()), option::of(text())),
        (revision, rate, run) in (any::<u64>(), any::<u64>(), any::<u64>()),
        (since, back_since, back_at) in (any::<i64>(), any::<i64>(), any::<i64>()),
        (copied_at, held_at, switched_at) in
            (option::of(any::<i64>()), option::of(any::<i64>()), option::of(any::<u64>())),
        (paused, stopped, needs_cleaning) in (any::<bool>(), any::<bool>(), any::<bool>()),
        (phase, counted, verified) in (phase(), option::of(counts()), option::of(verified())),
        comparing in option::of((any::<u64>(), option::of(any::<i64>()))),
        back_differences in option::of(any::<u64>()),
    ) -> State {
        State {
            migration, revision, phase, holder, fingerprint, since, back_since, counted, paused,
            stopped, rate, run, copied_at, held_at, switched_at, needs_cleaning, verified,
            back_differences, back_at,
            comparing: comparing.map(|(run, since)| Comparing { run, since }),
        }
    }
}

prop_compose! {
    fn task()(
        (migration, table, fingerprint) in (text(), text(), text()),
        (revision, run, leased_until, failed) in
            (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()),
        (segment, segments, page) in (any::<u32>(), any::<u32>(), option::of(any::<u32>())),
        (repairs, done, superseded, aside) in
            (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        (work, direction) in (work(), direction()),
        (cursor, owner, failing) in (option::of(text()), option::of(text()), option::of(text())),
        (share, counts, samples) in (option::of(any::<u64>()), counts(), vec(text(), 0..3)),
        clears in option::of((any::<bool>(), counts())),
    ) -> Task {
        Task {
            migration, revision, run, work, table, direction, segment, segments, fingerprint,
            repairs, done, superseded, cursor, owner, leased_until, share, counts, samples, page,
            failing, failed, aside,
            clears: clears.map(|(done, counts)| Copied { done, counts }),
        }
    }
}

prop_compose! {
    fn active()(
        revision in any::<u64>(),
        active in btree_map(text(), (direction(), text(), any::<i64>()), 0..3),
        moves in btree_map(text(), btree_set(text(), 1..3), 0..3),
    ) -> Active {
        let followed = |(direction, fingerprint, since)| Followed { direction, fingerprint, since };
        let active = active.into_iter().map(|(name, it)| (name, followed(it))).collect();
        let moves: BTreeMap<String, BTreeSet<String>> = moves;
        Active { revision, active, moves }
    }
}

proptest! {
    #[test]
    fn a_state(entry in state()) {
        prop_assert_eq!(read_back(&entry), entry);
    }

    #[test]
    fn a_task(entry in task()) {
        prop_assert_eq!(read_back(&entry), entry);
    }

    #[test]
    fn the_active_migrations(entry in active()) {
        prop_assert_eq!(read_back(&entry), entry);
    }

    #[test]
    fn a_route(
        migration in text(),
        run in option::of(text()),
        revision in any::<u64>(),
        read in side(),
        write in side(),
    ) {
        let entry = Route { migration, run, revision, read, write };
        prop_assert_eq!(read_back(&entry), entry);
    }

    #[test]
    fn texts_with_a_revision(migration in text(), revision in any::<u64>(), body in text()) {
        let plan = PlanEntry { migration: migration.clone(), revision, plan: body.clone() };
        prop_assert_eq!(read_back(&plan), plan);
        let marker = RecordTime { revision, marker: body.clone(), behind: revision / 2 };
        prop_assert_eq!(read_back(&marker), marker);
        let receipt = Receipt { migration, revision, receipt: body };
        prop_assert_eq!(read_back(&receipt), receipt);
    }

    #[test]
    fn notes(table in text(), key in text(), reason in text(), seconds in any::<u64>(), at in any::<u64>()) {
        let lag = Lag { table: table.clone(), seconds, at };
        prop_assert_eq!(read_back(&lag), lag);
        let followed = FollowedTable { table: table.clone(), at };
        prop_assert_eq!(read_back(&followed), followed);
        let throttled = Throttled { table: table.clone(), reason: reason.clone(), at };
        prop_assert_eq!(read_back(&throttled), throttled);
        let tombstone = Tombstone::new("shop", &table, &key, &reason);
        prop_assert_eq!(read_back(&tombstone), tombstone);
        let migration = "shop".to_owned();
        let kind = ProblemKind::Unassembled;
        let problem = Problem { migration, kind, table, key, reason, at: Some(at) };
        prop_assert_eq!(read_back(&problem), problem);
    }

    #[test]
    fn a_journal_line(line in any::<u64>(), from in phase(), to in phase(), why in text(), at in any::<i64>()) {
        let (migration, by) = ("shop".to_owned(), "ada".to_owned());
        let entry = JournalLine { migration, line, from, to, why, at, by };
        prop_assert_eq!(read_back(&entry), entry);
    }
}

#[test]
fn the_layout_is_the_documented_one() {
    let route = Route { write: Side::None, revision: 3, ..Route::new("shop") };
    let item: serde_dynamo::Item = serde_dynamo::to_item(&route).unwrap();
    for (name, expected) in [("read", "source"), ("write", "none")] {
        assert_eq!(item.get(name), Some(&serde_dynamo::AttributeValue::S(expected.to_owned())));
    }
    assert_eq!(item.get("revision"), Some(&serde_dynamo::AttributeValue::N("3".to_owned())));
}

/// Goal: the event filter in `template.yaml` passes exactly the tasks that a worker may lease.
#[test]
fn the_event_filter_sees_which_tasks_are_offered() {
    let passes = |task: &Task| {
        let item: serde_dynamo::Item = serde_dynamo::to_item(task).unwrap();
        let is_open = item.get("done") == Some(&serde_dynamo::AttributeValue::Bool(false));
        task.name().starts_with("TASK#")
            && is_open
            && ["owner", "aside"].into_iter().all(|name| item.get(name).is_none())
    };
    let mut task = Task::new("shop", 1, Work::CheckSource, "cats");
    assert!(passes(&task) && task.is_offered());
    task.lease("w", 9);
    assert!(!passes(&task) && !task.is_offered());
    task.fail("the table is gone", None, true);
    assert!(!passes(&task) && !task.is_offered());
    task.succeed(None);
    assert!(passes(&task) && task.is_offered());
    task.supersede();
    assert!(!passes(&task) && !task.is_offered());
}
