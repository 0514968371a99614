//! Adoption of definitions that arrive late: after an arc was down, or after the table was deleted.

use super::*;
use crate::arcs::adoption::has_followed;

/// Goal: an arc that was down while TTL was disabled for the old attribute adopts TTL for the new
/// attribute.
#[test]
fn an_arc_that_missed_a_change_of_ttl_follows_to_the_next() {
    let change = |change| Command::UpdateTimeToLive { table: TABLE, change };
    let (enable, disable) = (TimeToLiveChange::Enable, TimeToLiveChange::Disable);
    for steps_before in [0, 1] {
        let mut ring = Ring::new();
        ring.create(Vec::new());
        ring.apply(ArcId(0), change(enable("a".to_owned())));
        ring.adopt(1);
        for _ in 0..steps_before {
            ring.apply(ArcId(1), Command::StepTimeToLive { table: TABLE });
        }
        ring.apply(ArcId(0), Command::StepTimeToLive { table: TABLE });
        ring.apply(ArcId(0), change(disable("a".to_owned())));
        ring.apply(ArcId(0), Command::StepTimeToLive { table: TABLE });
        ring.apply(ArcId(0), change(enable("b".to_owned())));
        // A pending change of TTL does not block other changes of the table.
        let mut update = UpdateTable::of_options(TABLE, Vec::new());
        update.deletion_protection = Some(true);
        ring.apply(ArcId(0), Command::UpdateTable(Box::new(update)));
        let mut rounds = 0;
        while ring.table().is_behind {
            for arc in 1..ARCS {
                ring.adopt(arc);
                assert!(
                    ring.arc(ArcId(arc))
                        .machine
                        .catalogue()
                        .get(TABLE)
                        .unwrap()
                        .deletion_protection
                );
                ring.apply(ArcId(arc), Command::StepTimeToLive { table: TABLE });
            }
            rounds += 1;
            assert!(rounds < 5, "arc 1 never catches up");
        }
        for arc in 0..ARCS {
            ring.apply(ArcId(arc), Command::StepTimeToLive { table: TABLE });
            let table = ring.arc(ArcId(arc)).machine.catalogue().get(TABLE).unwrap();
            assert_eq!(table.time_to_live, TimeToLive::Enabled { attribute: "b".to_owned() });
        }
    }
}

#[test]
fn a_definition_is_followed_with_its_version_and_the_attribute_that_expires() {
    let mut ring = Ring::new();
    ring.create(Vec::new());
    let table = |(version, time_to_live): (u64, &TimeToLive)| {
        let mut table = ring.definition();
        table.placement.version = version;
        table.time_to_live = time_to_live.clone();
        table
    };
    let name = |attribute: &str| attribute.to_owned();
    let enabling = TimeToLive::Enabling { attribute: name("a"), cursor: None };
    let (enabled, other) = (
        TimeToLive::Enabled { attribute: name("a") },
        TimeToLive::Enabled { attribute: name("b") },
    );
    let (disabling, disabled) =
        (TimeToLive::Disabling { attribute: name("a") }, TimeToLive::Disabled);
    for (own, definition, expected) in [
        ((3, &disabled), (3, &disabled), true),
        ((3, &enabling), (3, &enabled), true),
        ((3, &enabled), (3, &enabling), true),
        ((3, &disabling), (3, &disabled), true),
        ((3, &disabled), (3, &disabling), true),
        ((3, &disabling), (3, &other), false),
        ((3, &disabled), (3, &other), false),
        ((3, &enabled), (3, &other), false),
        ((2, &enabled), (3, &enabled), false),
        ((4, &disabling), (3, &other), true),
    ] {
        let found = has_followed(&table(own), &table(definition));
        assert_eq!(found, expected, "{own:?} follows {definition:?}");
        // The repeated definition has no effect until the arc has disabled TTL for its own
        // attribute.
        let disables_own = own == (3, &disabling);
        let can = can_follow(&table(own), &table(definition));
        assert_eq!(can, !expected && !disables_own, "{own:?} can follow {definition:?}");
    }
}

/// Case: the first arc moves TTL to another attribute, while another arc is still disabling TTL for
/// the old attribute. The old definition arrives again after a newer definition.
#[test]
fn a_late_definition_undoes_nothing_while_ttl_changes() {
    let change = |change| Command::UpdateTimeToLive { table: TABLE, change };
    let enable = |attribute: &str| change(TimeToLiveChange::Enable(attribute.to_owned()));
    let step = Command::StepTimeToLive { table: TABLE };
    let mut ring = Ring::new();
    ring.create(Vec::new());
    // A change of TTL is complete immediately in an arc without items.
    for name in names_apart(&ring) {
        ring.write(name, Some(0));
    }
    ring.apply(ArcId(0), enable("a"));
    ring.apply(ArcId(0), step.clone());
    for arc in 1..ARCS {
        ring.adopt(arc);
        ring.apply(ArcId(arc), step.clone());
    }
    ring.apply(ArcId(0), change(TimeToLiveChange::Disable("a".to_owned())));
    ring.apply(ArcId(0), step.clone());
    ring.apply(ArcId(0), enable("b"));
    let late = ring.definition();
    assert_eq!(ring.adopt(1), Reply::Done { more: true });
    let mut update = UpdateTable::of_options(TABLE, Vec::new());
    update.indexes = vec![IndexChange::Create(by_group())];
    update.stream = Some(None);
    ring.apply(ArcId(0), Command::UpdateTable(Box::new(update)));
    assert_eq!(ring.adopt(1), Reply::Done { more: true });
    let newer = Table::clone(ring.arc(ArcId(1)).machine.catalogue().get(TABLE).unwrap());
    let placement = late.placement.clone();
    ring.apply(ArcId(1), Command::AdoptTable { table: Box::new(late), placement });
    assert_eq!(**ring.arc(ArcId(1)).machine.catalogue().get(TABLE).unwrap(), newer);
    ring.settle();
    for round in 0.. {
        assert!(round < 5, "arc 1 never catches up");
        for arc in 0..ARCS {
            ring.apply(ArcId(arc), step.clone());
        }
        let is_behind = ring.table().is_behind;
        let told: Vec<Reply> = (1..ARCS).map(|arc| ring.adopt(arc)).collect();
        if !is_behind {
            assert!(told.iter().all(|reply| *reply == Reply::Done { more: false }));
            break;
        }
    }
    for arc in &ring.arcs {
        let table = arc.machine.catalogue().get(TABLE).unwrap();
        assert_eq!(table.indexes.len(), 1);
        assert_eq!(table.indexes[0].status, IndexStatus::Active);
        assert!(table.enabled_stream().is_none());
        assert_eq!(table.time_to_live.indexed_attribute(), Some("b"));
        assert_eq!(table.placement.version, ring.definition().placement.version);
    }
}

/// Case: the first arc has removed its part of an index before another arc receives the removal of
/// the index.
#[test]
fn a_removed_index_never_becomes_active_again() {
    let mut ring = Ring::new();
    ring.create(vec![by_group()]);
    let mut update = UpdateTable::of_options(TABLE, Vec::new());
    update.indexes = vec![IndexChange::Delete("by-group".to_owned())];
    ring.apply(ArcId(0), Command::UpdateTable(Box::new(update)));
    let is_deleting = |ring: &Ring| ring.table().indexes[0].status == IndexStatus::Deleting;
    assert!(is_deleting(&ring));
    ring.apply(ArcId(0), Command::StepIndexes { table: TABLE });
    assert!(ring.definition().indexes.is_empty());
    assert!(is_deleting(&ring));
    ring.settle();
    assert!(ring.table().indexes.is_empty());
}

/// Returns an update that creates the index.
fn create_by_group() -> Command {
    let mut update = UpdateTable::of_options(TABLE, Vec::new());
    update.indexes = vec![IndexChange::Create(by_group())];
    Command::UpdateTable(Box::new(update))
}

/// Case: the first arc has no items to index and finishes immediately, before the arcs with items
/// have the index.
#[test]
fn a_new_index_is_active_when_every_arc_has_built_it() {
    let mut ring = Ring::new();
    ring.create(Vec::new());
    let name = (0..60).find(|name| ring.home(*name) == ArcId(1)).unwrap();
    ring.write(name, Some(1));
    ring.apply(ArcId(0), create_by_group());
    ring.apply(ArcId(0), Command::StepIndexes { table: TABLE });
    assert_eq!(ring.definition().indexes[0].status, IndexStatus::Active);
    let status = |ring: &Ring| ring.table().indexes[0].status.clone();
    assert!(matches!(status(&ring), IndexStatus::Creating { .. }));
    ring.adopt(1);
    ring.apply(ArcId(1), Command::StepIndexes { table: TABLE });
    assert!(
        matches!(status(&ring), IndexStatus::Creating { .. }),
        "the third arc does not know it"
    );
    ring.adopt(2);
    ring.settle();
    assert_eq!(status(&ring), IndexStatus::Active);
    ring.check();
}

/// Goal: the arc with the least progress determines the status of an index.
#[test]
fn the_slowest_arc_sets_the_status_of_an_index() {
    let deleting = || IndexStatus::Deleting;
    let creating = || IndexStatus::Creating { cursor: None };
    let delivering = || IndexStatus::Delivering { until: Vec::new() };
    let statuses = [deleting(), creating(), delivering(), IndexStatus::Active];
    let mut ring = Ring::new();
    ring.create(vec![by_group()]);
    let table = Table::clone(ring.arc(ArcId(0)).machine.catalogue().get(TABLE).unwrap());
    let part = |status: &IndexStatus| {
        let mut table = table.clone();
        table.indexes[0].status = status.clone();
        let mut catalogue = Catalogue::default();
        catalogue.put(table);
        std::sync::Arc::new(catalogue)
    };
    for (first, one) in statuses.iter().enumerate() {
        for (second, other) in statuses.iter().enumerate() {
            let parts = [part(one), part(&IndexStatus::Active), part(other)];
            let merged = Catalogue::merge(&parts);
            let found = &merged.get(TABLE).unwrap().indexes[0];
            assert_eq!(found.status, statuses[first.min(second)], "{one:?} and {other:?}");
            assert_eq!(found.is_being_built(), (1..=2).contains(&first.min(second)));
        }
    }
}

/// Goal: merging a stale copy of the first arc gives the right indexes. The result has every index
/// that the copy lacks, and an index that another arc has removed is not active.
#[test]
fn a_stale_copy_of_the_first_arc_adds_and_removes_no_index() {
    let mut ring = Ring::new();
    ring.create(Vec::new());
    let parts = |ring: &Ring| -> Vec<_> {
        ring.arcs.iter().map(|arc| std::sync::Arc::clone(arc.machine.catalogue())).collect()
    };
    let late = parts(&ring).remove(0);
    ring.apply(ArcId(0), create_by_group());
    ring.settle();
    let indexes = |late: &std::sync::Arc<Catalogue>, ring: &Ring| {
        let mut parts = parts(ring);
        parts[0] = std::sync::Arc::clone(late);
        Catalogue::merge(&parts).get(TABLE).unwrap().indexes.clone()
    };
    assert_eq!(indexes(&late, &ring), []);
    let late = parts(&ring).remove(0);
    let mut update = UpdateTable::of_options(TABLE, Vec::new());
    update.indexes = vec![IndexChange::Delete("by-group".to_owned())];
    ring.apply(ArcId(0), Command::UpdateTable(Box::new(update)));
    ring.settle();
    assert!(ring.table().indexes.is_empty());
    assert_eq!(indexes(&late, &ring)[0].status, IndexStatus::Deleting);
}

#[test]
fn a_table_accepts_items_when_every_arc_knows_it() {
    let mut ring = Ring::new();
    ring.create(Vec::new());
    let parts = |ring: &Ring| -> Vec<_> {
        ring.arcs.iter().map(|arc| std::sync::Arc::clone(arc.machine.catalogue())).collect()
    };
    let mut known = parts(&ring);
    assert!(Catalogue::merge(&known).get_for_items(TABLE).is_some());
    // An arc with an older version of the definition also has the table.
    ring.apply(
        ArcId(0),
        Command::UpdateTable(Box::new(UpdateTable::of_options(TABLE, Vec::new()))),
    );
    let behind = Catalogue::merge(&parts(&ring));
    assert_eq!(behind.get_for_items(TABLE).unwrap().status_text(), "UPDATING");
    known[2] = std::sync::Arc::default();
    let merged = Catalogue::merge(&known);
    assert!(merged.get_for_items(TABLE).is_none());
    assert_eq!(merged.get(TABLE).unwrap().status_text(), "CREATING");
}

#[test]
fn a_late_adoption_does_not_restore_a_deleted_table() {
    let mut ring = Ring::new();
    ring.create(vec![by_group()]);
    let definition = ring.definition();
    ring.apply(ArcId(0), Command::DeleteTable { table: TABLE });
    for arc in 1..ARCS {
        ring.apply(ArcId(arc), Command::DropTable { table: TABLE });
        ring.apply(ArcId(arc), Command::DropTable { table: TABLE });
        assert!(ring.arc(ArcId(arc)).machine.catalogue().get(TABLE).is_none());
        // A late adoption command creates the table again, but only in the arc that receives the
        // command.
        let (table, placement) = (Box::new(definition.clone()), definition.placement.clone());
        ring.apply(ArcId(arc), Command::AdoptTable { table, placement });
    }
    let parts: Vec<_> =
        ring.arcs.iter().map(|arc| std::sync::Arc::clone(arc.machine.catalogue())).collect();
    assert!(Catalogue::merge(&parts).get(TABLE).is_none());
}
