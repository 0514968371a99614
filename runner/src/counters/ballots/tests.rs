//! Votes, changed votes and recounts against a store in this process.

use serde_json::Value;
use tokio::net::TcpListener;

use super::super::testing::{place, serve};
use super::*;
use crate::test_store::TestStore;
use rules::counters::ballot::slot_of_voter;

async fn place_in(store: &TestStore) -> Place {
    for table in ["votes", "ballots"] {
        store.table(table).await;
    }
    let mut place = place(&store.url);
    place.rule.slot_key = "p".to_owned();
    place
}

async fn set_slot(store: &TestStore, slot: &str, value: &str) {
    let put = store.client.put_item().table_name("votes");
    let put = put.item("p", SdkValue::S(slot.to_owned()));
    put.item("votes", SdkValue::N(value.to_owned())).send().await.unwrap();
}

#[tokio::test]
async fn a_vote_that_would_make_a_slot_unreadable_is_refused() {
    let store = TestStore::open().await;
    let place = place_in(&store).await;
    let ballots = Ballots { place: &place, table: "ballots".to_owned(), key: "p".to_owned() };
    let vote = async |poll: &str, counter: &str, points: &str| {
        ballots.vote(poll, "ada", Some((counter, points.parse().unwrap()))).await
    };
    for (poll, counter, points, expected) in [
        ("2026", "A", "0.0000001", "points=`0.0000001` are outside"),
        ("2026", "A", "1e30", "are outside of what totals hold exactly"),
        ("2026", "", "1", "counter=`` has no slots"),
        ("tv#de", "A", "1", "poll=`tv#de` has a `#`"),
    ] {
        let refused = vote(poll, counter, points).await.unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
    // The slot is as high as it may be: it goes no further, but it goes down.
    let slot = Counters::slot_key_text("A", slot_of_voter("ada", 4));
    set_slot(&store, &slot, "9999999999999999999999999999.999999").await;
    let refused = vote("2026", "A", "0.000001").await.unwrap_err();
    assert!(refused.contains(&format!("because slot `{slot}` holds")), "{refused}");
    assert_eq!(vote("2026", "A", "-1").await, Ok(true));
    assert_eq!(vote("2026", "A", "-1").await, Ok(false));
    assert_eq!(ballots.vote("2026", "ada", None).await, Ok(true));
}

/// Both votes are allowed, and the difference between them is more than a vote may count.
#[tokio::test]
async fn a_changed_vote_leaves_its_slot_readable() {
    let store = TestStore::open().await;
    let place = place_in(&store).await;
    let ballots = Ballots { place: &place, table: "ballots".to_owned(), key: "p".to_owned() };
    let vote = async |points: &str| {
        ballots.vote("2026", "ada", Some(("A", points.parse().unwrap()))).await
    };
    for points in ["9e27", "-9e27", "9e27"] {
        assert_eq!(vote(points).await, Ok(true), "{points}");
    }
    // Others have taken more from the slot than ada's vote gave to it.
    let slot = Counters::slot_key_text("A", slot_of_voter("ada", 4));
    set_slot(&store, &slot, "-5e27").await;
    let refused = vote("-9e27").await.unwrap_err();
    assert!(refused.contains(&format!("because slot `{slot}` holds")), "{refused}");
    assert_eq!(vote("9e27").await, Ok(false), "the ballot is what it was");

    // A vote of an earlier build can be taken back from the slot that it made unreadable.
    let points = Number::from(1_i64).checked_add("1e30".parse().unwrap()).unwrap();
    let earlier = Ballot { counter: "A".to_owned(), slot: slot_of_voter("ada", 4), points };
    let earlier = to_sdk_item(&earlier.to_item().with("p", "2026#ada"));
    let put = store.client.put_item().table_name("ballots").set_item(Some(earlier));
    put.send().await.unwrap();
    set_slot(&store, &slot, "1000000000000000000000000000003").await;
    assert_eq!(vote("-1").await, Ok(true));
    let value = store.client.get_item().table_name("votes");
    let value = value.key("p", SdkValue::S(slot)).send().await.unwrap().item.unwrap();
    assert_eq!(value["votes"], SdkValue::N("1".to_owned()));
}

#[tokio::test]
async fn a_recount_names_what_it_cannot_read_and_goes_on() {
    let store = TestStore::open().await;
    let place = place_in(&store).await;
    let ballots = Ballots { place: &place, table: "ballots".to_owned(), key: "p".to_owned() };
    for (voter, counter) in [("ada", "A"), ("bob", "B")] {
        let vote = Some((counter, Number::from(1_i64)));
        assert_eq!(ballots.vote("2026", voter, vote).await, Ok(true));
    }
    set_slot(&store, "A#3", "1e30").await;
    set_slot(&store, "B#0", "5").await;
    let recount = ballots.recount(None, Duration::ZERO, true).await.unwrap();
    let drifted: Vec<_> = recount.drifted.iter().map(|d| (&*d.counter, d.repaired)).collect();
    assert_eq!(drifted, [("B", true)]);
    assert_eq!(recount.unreadable.len(), 1, "{:?}", recount.unreadable);
    assert!(recount.unreadable[0].starts_with("slot `A#3`: slot value `votes`=`1"));
    let again = ballots.recount(None, Duration::ZERO, false).await.unwrap();
    assert!(again.drifted.is_empty() && again.unreadable == recount.unreadable);
}

/// Another recount has repaired the counter after this one looked: the slot is not what was
/// seen, and nothing is added once more.
#[tokio::test]
async fn a_repair_is_guarded_by_what_was_seen() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = place(&format!("http://{}", listener.local_addr().unwrap()));
    let ballots = Ballots { place: &place, table: "b".to_owned(), key: "ballot".to_owned() };
    let seen = Seen {
        ballots: Number::from(9_i64),
        slots: Number::from(7_i64),
        repaired_in: Some(Number::from(3_i64)),
    };
    let changed = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed"}"#;
    let answers = [(200, "{}", false), (400, changed, false)];
    let repairs = async {
        assert_eq!(ballots.repair("A", seen).await, Ok(true));
        assert_eq!(ballots.repair("A", seen).await, Ok(false));
    };
    let (requests, ()) = tokio::join!(serve(listener, &answers), repairs);
    for request in requests {
        let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(body["ConditionExpression"], "#value = :seen");
        let values = serde_json::json!({":seen": {"N": "3"}, ":sum": {"N": "5"}});
        assert_eq!(body["ExpressionAttributeValues"], values);
    }
}

#[test]
fn a_counter_that_lost_all_its_ballots_is_compared_when_it_is_named() {
    let sums = |prefix: Option<&str>| {
        let mut sums = Sums::default();
        for (counter, points) in [("2026-blue", 2_i64), ("2026-blue", -1), ("2026-gold", 4)] {
            let ballot =
                Ballot { counter: counter.to_owned(), slot: 0, points: Number::from(points) };
            sums.add_ballot(&ballot);
        }
        for (counter, slot, value) in
            [("2026-blue", 0, 3_i64), ("2026-blue", 4, -2), ("2026-red", 2, 1), ("clicks", 0, 7)]
        {
            if sums.compares(counter, prefix) {
                sums.add_slot(counter, slot, Ok(Number::from(value)));
            }
        }
        let (count, differing) = sums.differing();
        let differing = differing.into_iter();
        let texts = differing.map(|(counter, seen)| {
            format!("{counter}: {} by ballots, {} in slots", seen.ballots, seen.slots)
        });
        (count, texts.collect::<Vec<_>>())
    };
    let gold = "2026-gold: 4 by ballots, 0 in slots".to_owned();
    let red = "2026-red: 0 by ballots, 1 in slots".to_owned();
    assert_eq!(sums(None), (2, vec![gold.clone()]));
    assert_eq!(sums(Some("2026-")), (3, vec![gold, red]));
    assert_eq!(sums(Some("")).0, 4);
}

#[tokio::test]
async fn a_changed_vote_does_not_begin_a_slot_that_is_gone_with_what_no_total_takes() {
    let store = TestStore::open().await;
    let place = place_in(&store).await;
    let ballots = Ballots { place: &place, table: "ballots".to_owned(), key: "p".to_owned() };
    let vote = async |points: &str| {
        ballots.vote("2026", "ada", Some(("A", points.parse().unwrap()))).await
    };
    vote("9e27").await.unwrap();
    let slot = slot_of_voter("ada", place.rule.slot_count);
    let gone = store.client.delete_item().table_name("votes");
    gone.key("p", SdkValue::S(format!("A#{slot}"))).send().await.unwrap();
    let refused = vote("-9e27").await.unwrap_err();
    assert!(refused.contains("because slot `A#"), "{refused}");
    // What a slot may begin with is taken.
    vote("1e27").await.unwrap();
}
