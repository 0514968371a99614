//! Tests of the prepared operations of a transaction in one arc: replies and size limit.

use model::EpochMillis;
use model::limits::ITEM_BYTES_MAX;

use crate::machine::tests::{Replica, START, create, entry, key, put, schema, write};
use crate::*;

const BEGAN: EpochMillis = EpochMillis(START);

fn prepare(id: u128, operations: Vec<Write>, return_items: bool) -> Command {
    let (id, deciding_arc) = (TransactionId(id), ArcId::FIRST);
    Command::Prepare(Box::new(Prepare { id, deciding_arc, began: BEGAN, operations, return_items }))
}

fn finish(id: u128, commit: bool) -> Command {
    Command::Finish(Finish { id: TransactionId(id), began: BEGAN, commit, operations: 2 })
}

fn operation(command: Command) -> Write {
    match command {
        Command::Write(write) => *write,
        other => panic!("{other:?} is not a write"),
    }
}

fn replica() -> Replica {
    let mut replica = Replica::new();
    replica.apply(1, &entry(0, vec![create(), put(1, 10, None)]));
    replica
}

/// Goal: the reply to `Finish` shows whether the transaction's items were locked until its end.
#[test]
fn finishing_replies_whether_items_were_locked() {
    for commit in [false, true] {
        let mut replica = replica();
        let operations = vec![operation(put(1, 20, None)), operation(put(2, 30, None))];
        let replies = replica.apply(2, &entry(0, vec![prepare(7, operations, false)]));
        assert!(matches!(replies[..], [Reply::Prepared { .. }]), "{replies:?}");
        let heads = read_prepared_heads(&replica.storage).unwrap();
        let head = PreparedHead { began: BEGAN, deciding_arc: ArcId::FIRST, operations: 2 };
        assert_eq!(heads, [(TransactionId(7), head)]);
        let ends = vec![finish(7, commit), finish(7, commit), finish(8, commit)];
        let replies = replica.apply(3, &entry(0, ends));
        let [
            Reply::Transacted { writes, repeated: false },
            Reply::TransactionOver,
            Reply::TransactionOver,
        ] = &replies[..]
        else {
            panic!("{replies:?}");
        };
        let made = writes.iter().map(|written| (written.old_bytes > 0, written.new_bytes > 0));
        let expected: &[_] = if commit { &[(true, true), (false, true)] } else { &[] };
        assert_eq!(made.collect::<Vec<_>>(), expected);
        assert_eq!(replica.items().len(), if commit { 2 } else { 1 });
        assert!(read_prepared_heads(&replica.storage).unwrap().is_empty());
    }
}

/// Goal: a transactional read returns the items, and another write of these items gets a conflict.
#[test]
fn a_transactional_read_locks_its_items() {
    let mut replica = replica();
    let before = replica.items();
    let checks = [1, 2].map(|number| operation(write(number, WriteAction::Check)));
    let replies = replica.apply(2, &entry(0, vec![prepare(7, checks.into(), true)]));
    let [Reply::Prepared { writes }] = &replies[..] else { panic!("{replies:?}") };
    let items: Vec<_> = writes.iter().map(|written| written.new.clone()).collect();
    assert_eq!(items, [before.first().cloned(), None]);
    let replies = replica.apply(3, &entry(0, vec![put(2, 1, None), put(3, 1, None)]));
    assert!(matches!(replies[..], [Reply::Conflict, Reply::Written(_)]), "{replies:?}");
    replica.apply(4, &entry(0, vec![finish(7, false)]));
    let replies = replica.apply(5, &entry(0, vec![put(2, 1, None)]));
    assert!(matches!(replies[..], [Reply::Written(_)]), "{replies:?}");
}

/// Goal: prepared operations fit into a message between nodes, even if small updates create large
/// items.
#[test]
fn a_transaction_whose_items_become_too_large_is_refused() {
    let mut replica = Replica::new();
    let large = |number: u8| {
        let room = ITEM_BYTES_MAX - 100;
        let item = key(number).to_item(&schema()).with("text", "x".repeat(room));
        write(number, WriteAction::put(&item))
    };
    replica.apply(1, &entry(0, vec![create()]));
    let puts: Vec<Command> = (0..100).map(large).collect();
    replica.apply(2, &entry(0, puts.clone()));
    for (id, count, fits) in [(3, 100, false), (4, 80, true)] {
        let operations = puts.iter().take(count).cloned().map(operation).collect();
        let replies = replica.apply(id, &entry(0, vec![prepare(id.into(), operations, false)]));
        match &replies[..] {
            [Reply::Prepared { .. }] => assert!(fits, "{count}"),
            [Reply::Invalid(text)] => {
                assert_eq!((fits, text.as_str()), (false, TRANSACTION_TOO_LARGE));
            }
            other => panic!("{other:?}"),
        }
    }
}
