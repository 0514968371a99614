//! Tests of the states of shards, and of the count of redriven records.

use super::*;

#[test]
fn a_shard_that_was_not_read_for_long_is_not_caught_up() {
    let shard = |tip: u64| ShardStatus {
        id: mapping::ShardId::new("s"),
        parent: None,
        phase: Phase::Reading,
        last_read: None,
        checkpoint: None,
        at_tip: true,
        tip_tick_ms: Some(tip),
        in_flight: 0,
        waiting: 0,
        failed_attempts: 0,
        unreachable: false,
        lag_ms: 0,
        lacks_child: false,
    };
    assert_eq!(state(&shard(1_000), 1_000 + TIP_MS_MAX), "caught up");
    assert_eq!(state(&shard(1_000), 1_001 + TIP_MS_MAX), "waits for an answer");
    assert_eq!(state(&shard(2_000), 1_000), "caught up");
}

#[test]
fn redrives_are_counted_only_if_records_were_discarded() {
    let status = |discarded: u64| json!({"mappings": [{"mapping": "M", "totals": {"discarded": discarded}}]});
    let mut none = status(0);
    note_redrives(&mut none, || unreachable!("nothing was discarded"));
    let mut some = status(2);
    for (discarded, expected) in [(2, 2), (1, 0), (3, 0)] {
        let own = Redriven { discarded, done: 2 };
        note_redrives(&mut some, || [("M".to_owned(), own)].into());
        assert_eq!(some.pointer("/mappings/0/totals/redriven"), Some(&json!(expected)));
    }
}

#[test]
fn a_disabled_mapping_is_known() {
    let status = json!({"mappings": [], "disabled": [{"mapping": "M", "function": "F"}]});
    assert!(is_disabled(&status, "M") && !is_disabled(&status, "N"));
}
