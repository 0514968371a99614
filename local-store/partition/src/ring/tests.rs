//! Tests of the changes of the ring.

use proptest::prelude::*;

use crate::keys::ring::KEY;
use crate::machine::tests::entry;
use crate::ring::placement_tests::{slot, slots};
use crate::storage::testing::MapStorage;
use crate::*;

/// Generates rings with every kind of node.
pub(crate) fn a_ring() -> impl Strategy<Value = Ring> {
    let slots = || (1..=u8::MAX).prop_map(slot);
    let node = (any::<u64>(), prop::option::of(".{0,9}"), any::<bool>());
    let node = node.prop_map(|(incarnation, address, is_leaving)| RingNode {
        incarnation,
        address,
        is_leaving,
    });
    let nodes = prop::collection::btree_map(slots(), node, 0..6);
    let replicas = prop::collection::vec(prop::collection::vec(slots(), 0..4), 0..9);
    let forgotten = prop::collection::btree_map(slots(), any::<u64>(), 0..4);
    (any::<u64>(), nodes, replicas, forgotten).prop_map(|(version, nodes, replicas, forgotten)| {
        Ring { version, nodes, replicas, forgotten }
    })
}

fn address(slot: Slot) -> Option<String> {
    Some(format!("host-{slot}:7000"))
}

fn found(nodes: std::ops::RangeInclusive<u8>, arcs: u32) -> RingChange {
    let nodes = slots(nodes).into_iter().map(|slot| (slot, address(slot))).collect();
    RingChange::Found { nodes, arcs }
}

fn join(number: u8) -> RingChange {
    RingChange::Join { slot: slot(number), address: address(slot(number)) }
}

fn leave(number: u8) -> RingChange {
    RingChange::Leave { slot: slot(number) }
}

fn forget(number: u8) -> RingChange {
    RingChange::Forget { slot: slot(number) }
}

fn readmit(number: u8, lost: u64) -> RingChange {
    RingChange::Readmit { slot: slot(number), lost }
}

fn readdress(number: u8, address: &str) -> RingChange {
    RingChange::Readdress { slot: slot(number), address: Some(address.to_owned()) }
}

/// Returns a ring after changes that must all succeed.
fn after(changes: &[RingChange]) -> Ring {
    changes.iter().fold(Ring::default(), |ring, change| {
        ring.change(change).unwrap_or_else(|refusal| panic!("{change:?}: {refusal}"))
    })
}

/// Checks that a refusal is what the ring answers, and that its text begins so.
fn check_refusal(ring: &Ring, change: &RingChange, text: &str) {
    let refusal = ring.change(change).unwrap_err().to_string();
    assert!(refusal.starts_with(text), "{change:?}: {refusal}");
}

#[test]
fn a_ring_is_founded_once() {
    let ring = after(&[found(1..=4, 8)]);
    assert_eq!((ring.version, ring.replicas.len(), ring.members().len()), (1, 8, 4));
    assert_eq!(ring.replicas, place_first(8, &slots(1..=4)));
    assert_eq!(ring.change(&found(1..=4, 8)), Ok(ring.clone()), "a repetition has no effect");
    for other in [found(1..=3, 8), found(1..=5, 8), found(1..=4, 9)] {
        check_refusal(&ring, &other, "the cluster already has a ring with other nodes");
    }
    let moved = ring.change(&readdress(4, "elsewhere:1")).unwrap();
    check_refusal(&moved, &found(1..=4, 8), "the cluster already has a ring with other nodes");
    let none = Ring::default();
    assert!(!none.is_founded() && none.members().is_empty());
    check_refusal(&none, &join(1), "the cluster has no ring yet");
    check_refusal(&none, &RingChange::Found { nodes: [].into(), arcs: 1 }, "a ring needs at least");
    check_refusal(&none, &found(1..=3, 0), "a ring has 1 to 128 arcs, not 0");
    check_refusal(&none, &found(1..=3, 129), "a ring has 1 to 128 arcs, not 129");
}

#[test]
fn a_node_joins_leaves_and_is_forgotten() {
    let ring = after(&[found(1..=3, 24), join(9)]);
    let share = |ring: &Ring, number| {
        ring.replicas.iter().filter(|arc| arc.contains(&slot(number))).count()
    };
    assert_eq!((ring.version, share(&ring, 9)), (2, 18));
    check_refusal(&ring, &join(9), "the ring already has a node 9; choose another slot");
    check_refusal(&ring, &forget(9), "node 9 is a member of the ring; let it leave before");
    let left = ring.change(&leave(9)).unwrap();
    assert_eq!((left.version, share(&left, 9), left.members()), (3, 0, slots(1..=3)));
    assert!(left.nodes[&slot(9)].is_leaving);
    assert_eq!(left.change(&leave(9)), Ok(left.clone()), "a repetition has no effect");
    check_refusal(&left, &join(9), "node 9 leaves the ring");
    check_refusal(&left, &readmit(9, 0), "node 9 leaves the ring");
    check_refusal(&left, &leave(1), "node 1 cannot leave, because only 2 nodes would remain");
    check_refusal(&left, &leave(7), "the ring has no node 7");
    let gone = left.change(&forget(9)).unwrap();
    assert_eq!((gone.version, gone.nodes.len()), (4, 3));
    assert_eq!(gone.change(&forget(9)), Ok(gone.clone()), "a repetition has no effect");
    check_refusal(&gone, &forget(8), "the ring has no node 8");
}

#[test]
fn an_incarnation_is_never_reused() {
    let mut ring = after(&[found(1..=4, 8)]);
    let id = |ring: &Ring| ring.node_id(slot(4));
    assert_eq!((id(&ring), ring.node_id(slot(5))), (Some(4), None));
    for (change, expected) in [
        (readmit(4, 0), 256 + 4),
        (readmit(4, 0), 256 + 4),
        (readmit(4, 1), 512 + 4),
        (join(5), 512 + 4),
        (leave(4), 512 + 4),
    ] {
        let replicas = ring.replicas.clone();
        ring = ring.change(&change).unwrap();
        assert_eq!(id(&ring), Some(expected), "{change:?}");
        assert!(!matches!(change, RingChange::Readmit { .. }) || replicas == ring.replicas);
    }
    ring = ring.change(&forget(4)).unwrap();
    assert_eq!(id(&ring), None);
    ring = ring.change(&join(4)).unwrap();
    assert_eq!(id(&ring), Some(3 * 256 + 4));
    check_refusal(&ring, &readmit(4, 4), "node 4 has incarnation 3, and never had 4");
}

#[test]
fn a_node_has_an_address_of_its_own() {
    let ring = after(&[found(1..=3, 3), readdress(2, "moved:1")]);
    assert_eq!((ring.version, &ring.nodes[&slot(2)].address), (2, &Some("moved:1".to_owned())));
    assert_eq!(ring.change(&readdress(2, "moved:1")), Ok(ring.clone()));
    check_refusal(&ring, &readdress(3, "moved:1"), "node 2 already has the address");
    check_refusal(&ring, &readdress(4, "moved:2"), "the ring has no node 4");
    check_refusal(&ring, &readdress(3, ""), "the address of node 3 has 0 bytes");
    check_refusal(&ring, &readdress(3, &"x".repeat(262)), "the address of node 3 has 262 bytes");
}

fn apply(machine: &mut Machine, storage: &mut MapStorage, change: RingChange) -> Reply {
    let command = Command::ChangeRing(Box::new(change));
    let index = machine.applied_index() + 1;
    let (batch, mut replies) = machine.apply(storage, index, &entry(0, vec![command])).unwrap();
    storage.apply(batch);
    replies.remove(0)
}

#[test]
fn the_first_arc_keeps_the_ring() {
    let position = |arc| ArcPosition { arc: ArcId(arc), arcs: 2 };
    let mut storage = MapStorage::default();
    let mut machine = Machine::open_in(position(0), &storage).unwrap();
    assert_eq!((&**machine.ring(), read_ring(&storage)), (&Ring::default(), Ok(None)));
    let reply = apply(&mut machine, &mut storage, found(1..=3, 4));
    let text = "the cluster has 2 arcs, not 4; found the ring with 2 arcs";
    assert_eq!(reply, Reply::Invalid(text.to_owned()));
    assert_eq!(read_ring(&storage), Ok(None), "a refusal changes nothing");
    for change in [found(1..=3, 2), join(4), join(4)] {
        apply(&mut machine, &mut storage, change);
    }
    let ring = after(&[found(1..=3, 2), join(4)]);
    assert_eq!((&**machine.ring(), read_ring(&storage)), (&ring, Ok(Some(ring.clone()))));
    let reply = apply(&mut machine, &mut storage, found(1..=3, 2));
    assert!(matches!(reply, Reply::Invalid(text) if text.starts_with("the cluster already has")));
    let reply = apply(&mut machine, &mut storage, leave(4));
    let left = ring.change(&leave(4)).unwrap();
    assert_eq!(reply, Reply::Ring(Box::new(left.clone())));
    let opened = Machine::open_in(position(0), &storage).unwrap();
    assert_eq!(**opened.ring(), left);
    assert_eq!(locate(opened.catalogue(), &KEY), Ok(Location::In(ArcId::FIRST)));

    let mut storage = MapStorage::default();
    let mut machine = Machine::open_in(position(1), &storage).unwrap();
    let reply = apply(&mut machine, &mut storage, found(1..=3, 2));
    assert!(matches!(reply, Reply::Invalid(text) if text.starts_with("only the first arc")));
    assert_eq!(read_ring(&storage), Ok(None));
}

proptest! {
    /// Goal: whatever the history, the version counts the changes, leaving nodes have no arcs, and
    /// no node id is used by two nodes.
    #[test]
    fn invariants_hold(changes in prop::collection::vec(a_change(), 1..60)) {
        let mut ring = after(&[found(1..=3, 24)]);
        let first = slots(1..=3);
        let mut ids: Vec<u64> = first.iter().filter_map(|slot| ring.node_id(*slot)).collect();
        for change in changes {
            let Ok(changed) = ring.change(&change) else { continue };
            prop_assert_eq!(changed.version, ring.version + u64::from(changed != ring));
            let members = changed.members();
            prop_assert!(members.len() >= REPLICAS);
            for arc in &changed.replicas {
                prop_assert_eq!(arc.len(), REPLICAS);
                prop_assert!(arc.iter().all(|slot| members.contains(slot)));
            }
            let of = |ring: &Ring| ring.nodes.keys().filter_map(|it| ring.node_id(*it)).collect();
            let (before, now): (Vec<u64>, Vec<u64>) = (of(&ring), of(&changed));
            for id in now.iter().filter(|id| !before.contains(id)) {
                prop_assert!(!ids.contains(id), "{} is reused by {:?}", id, change);
                ids.push(*id);
            }
            ring = changed;
        }
    }
}

/// Generates changes of a founded ring, many of which are possible.
fn a_change() -> impl Strategy<Value = RingChange> {
    (1..=8_u8, 0..3_u64, 0..6_u8).prop_map(|(number, lost, kind)| match kind {
        0 | 1 => join(number),
        2 => leave(number),
        3 => forget(number),
        4 => readmit(number, lost),
        _ => readdress(number, &format!("{number}:{lost}")),
    })
}
