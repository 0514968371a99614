//! Tests of votes, changed votes and recounts against a store in this process.

use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::testing::{place, serve};
use super::*;
use rules::counters::ballot::slot_of_voter;
use testing::store::TestStore;

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
        ("2026", "A", "1e30", "are outside the range that totals can store exactly"),
        ("2026", "", "1", "counter=`` has no slots"),
        ("tv#de", "A", "1", "poll=`tv#de` contains `#`"),
    ] {
        let refused = vote(poll, counter, points).await.unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    // The slot is at its maximum, so it can only shrink.
    let slot = Counters::slot_key_text("A", slot_of_voter("ada", 4));
    set_slot(&store, &slot, "9999999999999999999999999999.999999").await;
    let refused = vote("2026", "A", "0.000001").await.unwrap_err().to_string();
    assert!(refused.contains(&format!("because slot `{slot}` is not")), "{refused}");
    assert_eq!(vote("2026", "A", "-1").await, Ok(true));
    assert_eq!(vote("2026", "A", "-1").await, Ok(false));
    assert_eq!(ballots.vote("2026", "ada", None).await, Ok(true));
}

/// Both votes are valid, but their difference is more than a single vote may count.
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
    // Other voters have subtracted more from the slot than ada's vote added.
    let slot = Counters::slot_key_text("A", slot_of_voter("ada", 4));
    set_slot(&store, &slot, "-5e27").await;
    let refused = vote("-9e27").await.unwrap_err().to_string();
    assert!(refused.contains(&format!("because slot `{slot}` is not")), "{refused}");
    assert_eq!(vote("9e27").await, Ok(false), "the ballot is what it was");

    // An earlier version accepted a vote that makes its slot unreadable. This vote can be
    // withdrawn.
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
async fn a_recount_names_unreadable_items_and_continues() {
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

#[tokio::test]
async fn a_recount_names_invalid_ballots_and_continues() {
    let store = TestStore::open().await;
    let place = place_in(&store).await;
    let ballots = Ballots { place: &place, table: "ballots".to_owned(), key: "p".to_owned() };
    for (voter, counter) in [("ada", "a-1"), ("bob", "b-1"), ("cy", "b-2")] {
        let vote = Some((counter, Number::from(1_i64)));
        assert_eq!(ballots.vote("2026", voter, vote).await, Ok(true));
    }
    let put = async |key: &str, counter: Option<&str>| {
        let put = store.client.put_item().table_name("ballots");
        let counter =
            counter.map(|counter| ("counter".to_owned(), SdkValue::S(counter.to_owned())));
        let key = ("p".to_owned(), SdkValue::S(key.to_owned()));
        put.set_item(Some([key].into_iter().chain(counter).collect())).send().await.unwrap();
    };
    put("settings", None).await;
    put("2026#eve", Some("a-1")).await;
    for counter in ["a-1", "b-1"] {
        set_slot(&store, &format!("{counter}#0"), "5").await;
    }
    let found = async |prefix: Option<&str>, repair: bool| {
        let recount = ballots.recount(prefix, Duration::ZERO, repair).await.unwrap();
        let drifted = recount.drifted.into_iter().map(|drift| (drift.counter, drift.repaired));
        (drifted.collect::<Vec<_>>(), recount.unreadable)
    };
    let (drifted, unreadable) = found(None, false).await;
    assert_eq!(drifted, [("b-1".to_owned(), false)]);
    let [vote, other] = &unreadable[..] else { panic!("{unreadable:?}") };
    assert!(
        vote.starts_with("item `2026#eve` of table `ballots`: the item is not a ballot"),
        "{vote}"
    );
    assert!(
        other.starts_with("item `settings` of table `ballots`: the item is not a ballot"),
        "{other}"
    );
    // The item may be a vote for `b-1`, and a repair of `b-1` would remove that vote.
    put("2026#dan", None).await;
    let (drifted, unreadable) = found(Some("b-"), true).await;
    assert_eq!((drifted, unreadable.len()), (vec![("b-1".to_owned(), false)], 1));
    let gone = store.client.delete_item().table_name("ballots");
    gone.key("p", SdkValue::S("2026#dan".to_owned())).send().await.unwrap();
    assert_eq!(found(Some("b-"), true).await, (vec![("b-1".to_owned(), true)], vec![]));
}

fn seen(ballots: i64, slots: &[i64]) -> CounterRead {
    let slots = slots.iter().map(|value| Number::from(*value));
    let sum = slots.clone().fold(Number::ZERO, |sum, value| sum.checked_add(value).unwrap());
    let (ballots, every_slot) = (Number::from(ballots), (0..).zip(slots).collect());
    CounterRead { every_ballot: Digest::default(), ballots, every_slot, slots: sum }
}

/// Returns a place whose endpoint is a listener, so that the test writes the answers.
async fn listening() -> (TcpListener, Place) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = place(&format!("http://{}", listener.local_addr().unwrap()));
    (listener, place)
}

fn body(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// The slots may have changed because another recount repaired the counter, or because a vote
/// arrived. In both cases nothing is added again.
#[tokio::test]
async fn a_repair_is_guarded_by_every_slot_that_was_seen() {
    let (listener, place) = listening().await;
    let ballots = Ballots { place: &place, table: "b".to_owned(), key: "ballot".to_owned() };
    let seen = seen(9, &[3, 6, -2]);
    let changed = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"cancelled","CancellationReasons":[{"Code":"ConditionalCheckFailed"},{"Code":"None"},{"Code":"None"}]}"#;
    let answers = [(200, "{}", false), (400, changed, false)];
    let repairs = async {
        assert_eq!(ballots.repair("A", &seen).await, Ok(true));
        assert_eq!(ballots.repair("A", &seen).await, Ok(false));
    };
    let (requests, ()) = tokio::join!(serve(listener, &answers), repairs);
    for request in requests {
        let body = body(&request);
        let mut guards = Vec::new();
        for part in body["TransactItems"].as_array().unwrap() {
            let (_, part) = part.as_object().unwrap().iter().next().unwrap();
            assert_eq!(part["ConditionExpression"], "#value = :seen");
            guards.push((&part["Key"]["sl\"ot"]["S"], &part["ExpressionAttributeValues"]));
        }
        let (one, two) = (json!({":seen": {"N": "6"}}), json!({":seen": {"N": "-2"}}));
        let zero = json!({":seen": {"N": "3"}, ":sum": {"N": "5"}});
        let (a0, a1, a2) = (json!("A#0"), json!("A#1"), json!("A#2"));
        assert_eq!(guards, [(&a1, &one), (&a2, &two), (&a0, &zero)]);
    }
}

#[tokio::test]
async fn a_counter_with_too_many_slots_for_a_transaction_is_not_repaired() {
    let store = TestStore::open().await;
    let place = place_in(&store).await;
    let ballots = Ballots { place: &place, table: "ballots".to_owned(), key: "p".to_owned() };
    for (slots, repaired) in [(100, true), (101, false)] {
        for slot in 0..slots {
            set_slot(&store, &format!("A#{slot}"), "1").await;
        }
        let recount = ballots.recount(Some("A"), Duration::ZERO, true).await.unwrap();
        let repairs: Vec<bool> = recount.drifted.iter().map(|drift| drift.repaired).collect();
        assert_eq!(repairs, [repaired], "{slots}");
    }
}

/// Two voters change their votes around each read, so that both reads have the same sums. The slots
/// and the ballots of one read are nevertheless from different times.
#[tokio::test]
async fn sums_that_come_back_while_votes_change_are_no_drift() {
    let page = |items: Vec<Value>| json!({ "Items": items, "Count": items.len() }).to_string();
    let ballot = |voter: &str, counter: &str, drawn: u64| {
        json!({"ballot": {"S": voter}, "counter": {"S": counter}, "counted_in": {"N": "1"},
            "points": {"N": "1"}, "drawn": {"N": drawn.to_string()}})
    };
    let slot = |slot: &str, votes: &str| json!({"sl\"ot": {"S": slot}, "votes": {"N": votes}});
    let [one, two] = [("ada", "bob"), ("bob", "ada")]
        .map(|(a, b)| page(vec![ballot(a, "A", 1), ballot(b, "B", 1)]));
    // The same ballots after another write.
    let anew = page(vec![ballot("ada", "A", 2), ballot("bob", "B", 1)]);
    let slots = page(vec![slot("A#1", "0"), slot("B#1", "1")]);
    let others = page(vec![slot("A#0", "1"), slot("A#1", "-1"), slot("B#1", "1")]);
    for (looks, drifts) in [
        ([&one, &slots, &two, &slots], false),
        ([&one, &slots, &anew, &slots], false),
        ([&one, &slots, &one, &others], false),
        ([&one, &slots, &one, &slots], true),
    ] {
        let (listener, place) = listening().await;
        let ballots = Ballots { place: &place, table: "b".to_owned(), key: "ballot".to_owned() };
        let answers = looks.map(|page| (200, page.as_str(), false));
        let recount = ballots.recount(None, Duration::ZERO, false);
        let (_, recount) = tokio::join!(serve(listener, &answers), recount);
        let drifted: Vec<_> = recount.unwrap().drifted.into_iter().map(|d| d.counter).collect();
        assert_eq!(drifted, if drifts { vec!["A"] } else { vec![] }, "{looks:?}");
    }
}

#[tokio::test]
async fn a_vote_that_is_changed_back_is_another_ballot() {
    let store = TestStore::open().await;
    let place = place_in(&store).await;
    let ballots = Ballots { place: &place, table: "ballots".to_owned(), key: "p".to_owned() };
    let mut drawn = BTreeSet::new();
    for vote in [Some("A"), Some("B"), Some("A"), None, Some("A")] {
        let vote = vote.map(|counter| (counter, Number::from(1_i64)));
        assert_eq!(ballots.vote("2026", "ada", vote).await, Ok(true));
        assert_eq!(ballots.vote("2026", "ada", vote).await, Ok(false));
        let items = store.client.scan().table_name("ballots").send().await.unwrap().items.unwrap();
        drawn.extend(items.iter().map(|item| item["drawn"].as_n().unwrap().clone()));
    }
    assert_eq!(drawn.len(), 4);
}

/// The response to a repair was lost after the repair was applied. The retry is the same
/// transaction.
#[tokio::test]
async fn a_repair_whose_answer_was_lost_is_made_once() {
    let (listener, place) = listening().await;
    let ballots = Ballots { place: &place, table: "b".to_owned(), key: "ballot".to_owned() };
    let lost = r#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"x"}"#;
    let answers = [(500, lost, true), (200, "{}", false)];
    let seen = seen(9, &[3]);
    let repair = ballots.repair("A", &seen);
    let (requests, repaired) = tokio::join!(serve(listener, &answers), repair);
    assert_eq!(repaired, Ok(true));
    let tokens: Vec<Value> =
        requests.iter().map(|request| body(request)["ClientRequestToken"].clone()).collect();
    assert!(tokens[0].is_string() && tokens[0] == tokens[1], "{tokens:?}");
}

#[test]
fn a_counter_that_lost_all_its_ballots_is_compared_when_it_is_named() {
    let sums = |prefix: Option<&str>| {
        let mut sums = Sums::default();
        for (counter, points) in [("2026-blue", 2_i64), ("2026-blue", -1), ("2026-gold", 4)] {
            let ballot =
                Ballot { counter: counter.to_owned(), slot: 0, points: Number::from(points) };
            sums.add_ballot(&ballot, &ballot.to_item());
        }
        for (counter, slot, value) in
            [("2026-blue", 0, 3_i64), ("2026-blue", 4, -2), ("2026-red", 2, 1), ("clicks", 0, 7)]
        {
            if sums.compares(counter, prefix) {
                sums.add_slot(counter, slot, Ok(Number::from(value)));
            }
        }
        let count = sums.seen.len();
        let differing = sums.differing().into_iter();
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
async fn a_changed_vote_does_not_recreate_a_slot_with_an_invalid_value() {
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
    let refused = vote("-9e27").await.unwrap_err().to_string();
    assert!(refused.contains("because slot `A#"), "{refused}");
    // The first vote of a slot is accepted.
    vote("1e27").await.unwrap();
}
