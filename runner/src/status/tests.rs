//! Tests of the output and the exit code of `weir status`.

use super::*;

/// Returns a mapping with one shard. The parameters change some members.
fn status(state: &str, totals: &Value, not_run: &Value) -> Value {
    json!({
        "mappings": [{
            "mapping": "M", "function": "F", "described": true, "unavailable": null,
            "totals": totals, "shards": [{"id": "s", "state": state, "waiting": 0}],
        }],
        "not_run": not_run,
    })
}

#[test]
fn all_is_well_when_nothing_waits_and_nothing_is_lost() {
    let none = json!([]);
    let absent = |accepted: bool| json!([{"mapping": "H", "function": "Hello", "reason": "Node", "accepted": accepted}]);
    for (state, totals, not_run, is_well, said) in [
        ("caught up", json!({"discarded": 0, "gaps": 0}), &none, true, None),
        ("done", json!({}), &none, true, None),
        ("working", json!({}), &none, false, None),
        ("retrying", json!({}), &none, false, None),
        ("caught up", json!({"discarded": 2}), &none, false, Some("2 records were discarded")),
        (
            "caught up",
            json!({"discarded": 1, "redriven": 0}),
            &none,
            false,
            Some("1 record was discarded since `weir up` started; `weir streams"),
        ),
        (
            "caught up",
            json!({"discarded": 3, "redriven": 2}),
            &none,
            false,
            Some("2 redriven and processed, 1 not"),
        ),
        (
            "caught up",
            json!({"discarded": 3, "redriven": 3}),
            &none,
            true,
            Some("all of them were redriven"),
        ),
        ("caught up", json!({"gaps": 1}), &none, false, Some("LOST 1 time since")),
        ("caught up", json!({}), &absent(false), false, Some("no stream invokes `Hello`: Node")),
        ("caught up", json!({}), &absent(true), true, Some("no stream invokes `Hello`: Node")),
    ] {
        let status = status(state, &totals, not_run);
        let shown = show(&status, Output::Json);
        assert_eq!(shown.is_well, is_well, "{status}");
        let columns = HEADINGS.len() + counts::HEADINGS.len();
        assert!(shown.rows.iter().all(|row| row.len() == columns), "{status}");
        let is_said = said.is_none_or(|said| shown.remarks.iter().any(|it| it.contains(said)));
        assert!(is_said && said.is_some() != shown.remarks.is_empty(), "{:?}", shown.remarks);
    }
}

#[test]
fn a_disabled_mapping_is_shown_and_is_no_failure() {
    let status = json!({"mappings": [], "disabled": [{"mapping": "M", "function": "F"}]});
    let shown = show(&status, Output::Table);
    assert_eq!(shown.rows[0][..3], [json!("M"), Value::Null, json!("disabled")]);
    assert!(shown.is_well && shown.remarks[0].contains("`F`"), "{:?}", shown.remarks);
}

#[test]
fn the_counts_of_a_mapping_are_on_its_first_row() {
    let shard = |state: &str| json!({"id": "s", "state": state, "waiting": 0});
    let totals = json!({"read": 9, "filtered": 3, "done": 4, "failures": 1, "discarded": 2});
    let status = json!({"mappings": [
        {
            "mapping": "M", "described": true, "totals": totals,
            "shards": [shard("done"), shard("caught up"), shard("caught up")],
        },
        {"mapping": "N", "described": true, "totals": {}, "shards": [shard("caught up")]},
    ]});
    let counts = |output| {
        let rows = show(&status, output).rows;
        rows.into_iter().map(|row| json!(row[HEADINGS.len()..])).collect::<Vec<_>>()
    };
    let (first, none) = (json!([9, 3, 4, 1, 2]), json!([null, null, null, null, null]));
    let zero = json!([0, 0, 0, 0, 0]);
    let of_table = [first.clone(), none.clone(), zero.clone()];
    assert_eq!(counts(Output::Table), of_table, "the first that is shown");
    assert_eq!(counts(Output::Json), [first, none.clone(), none, zero]);
    let told = show(&status, Output::Table).counts;
    assert_eq!(
        told,
        [
            [json!("M"), json!(9), json!(3), json!(4), json!(1), json!(2)].to_vec(),
            [json!("N"), json!(0), json!(0), json!(0), json!(0), json!(0)].to_vec()
        ]
    );
}

#[test]
fn a_mapping_that_ended_or_knows_no_shards_is_a_failure() {
    for members in [
        json!({"described": false}),
        json!({"described": true, "unavailable": "x"}),
        json!({"described": true, "ended": true, "end": "its stream is disabled"}),
        json!({"described": true, "ended": true, "shards": [{"id": "s", "state": "caught up"}]}),
        json!({"described": true, "unavailable": "x", "ended": true, "end": "x"}),
        json!({"described": true, "unsaved": true, "shards": [{"id": "s", "state": "waits for its parent"}]}),
    ] {
        let shown = show(&json!({ "mappings": [members.clone()] }), Output::Table);
        assert!(!shown.is_well && shown.remarks.len() == 1, "{:?}", shown.remarks);
        let is_early = members.get("described") == Some(&json!(false));
        assert_eq!(shown.is_early, is_early, "{members}");
        let state = shown.rows[0][2].as_str().unwrap();
        let is_ended = members.get("ended").is_some();
        assert_eq!(state == ENDED, is_ended, "{members}: {state}");
    }
}
