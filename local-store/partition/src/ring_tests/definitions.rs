//! What an arc makes of tables that it hears of late: after it was away, or when they are gone.

use super::*;

/// An arc that was away has missed that the attribute before was given up.
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
        // What else was changed is not held up by it.
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
            assert!(rounds < 5, "arc 1 never follows");
        }
        for arc in 0..ARCS {
            ring.apply(ArcId(arc), Command::StepTimeToLive { table: TABLE });
            let table = ring.arc(ArcId(arc)).machine.catalogue().get(TABLE).unwrap();
            assert_eq!(table.time_to_live, TimeToLive::Enabled { attribute: "b".to_owned() });
        }
    }
}

/// The first arc has removed its part of an index before another one has heard that it is to go.
#[test]
fn an_index_that_is_gone_is_never_shown_as_active_again() {
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

#[test]
fn a_table_takes_items_when_every_arc_knows_it() {
    let mut ring = Ring::new();
    ring.create(Vec::new());
    let parts = |ring: &Ring| -> Vec<_> {
        ring.arcs.iter().map(|arc| std::sync::Arc::clone(arc.machine.catalogue())).collect()
    };
    let mut known = parts(&ring);
    assert!(Catalogue::merge(&known).get_for_items(TABLE).is_some());
    // An arc that is behind knows it nevertheless.
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
fn a_table_that_was_deleted_does_not_come_back_for_good() {
    let mut ring = Ring::new();
    ring.create(vec![by_group()]);
    let definition = ring.definition();
    ring.apply(ArcId(0), Command::DeleteTable { table: TABLE });
    for arc in 1..ARCS {
        ring.apply(ArcId(arc), Command::DropTable { table: TABLE });
        ring.apply(ArcId(arc), Command::DropTable { table: TABLE });
        assert!(ring.arc(ArcId(arc)).machine.catalogue().get(TABLE).is_none());
        // An adoption that comes late makes it again there, and nowhere else.
        let (table, placement) = (Box::new(definition.clone()), definition.placement.clone());
        ring.apply(ArcId(arc), Command::AdoptTable { table, placement });
    }
    let parts: Vec<_> =
        ring.arcs.iter().map(|arc| std::sync::Arc::clone(arc.machine.catalogue())).collect();
    assert!(Catalogue::merge(&parts).get(TABLE).is_none());
}
