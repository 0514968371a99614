//! Tests which items a touch marks, and from which items it removes an old mark.

use super::*;

/// Returns a plan that moves the items of `src` whose `kind` is `a`. Its backfill touches the
/// items. An item whose `v` is not a number cannot be transformed.
fn touching_plan() -> String {
    let mut plan: Value = serde_json::from_str(&moved_plan()).unwrap();
    plan["backfill"] = json!("touch");
    plan["from"][0]["items"][0]["transform"] =
        json!("select(.kind == \"a\") | {id, v: (.v | tonumber)}");
    plan.to_string()
}

fn item(id: &str, kind: &str, v: &str, mark: Option<&str>) -> Value {
    let mut item = json!({"id": {"S": id}, "kind": {"S": kind}, "v": {"S": v}});
    if let Some(mark) = mark {
        item["_weir_touch"] = json!({"S": mark});
    }
    item
}

/// Describes an update: the item, whether its mark is set or removed, and the mark's owner.
fn said(update: &Value) -> String {
    let text = |place: &str| update.pointer(place).and_then(Value::as_str).unwrap();
    let word = text("/UpdateExpression").split(' ').next().unwrap();
    if word == "REMOVE" {
        assert_eq!(text("/ConditionExpression"), "#touch = :touch", "{update}");
    }
    assert_eq!(text("/ExpressionAttributeNames/#touch"), "_weir_touch");
    format!("{} {word} {}", text("/Key/id/S"), text("/ExpressionAttributeValues/:touch/S"))
}

/// Processes a task over these items. Returns the task's entry, and the descriptions of the
/// updates.
async fn updated(state: &State, task: Task, items: &[Value]) -> (Task, Vec<String>) {
    let mut updates = Vec::new();
    let answer = |operation: &str, body: &Value| match operation {
        "scan" => ("200 OK", json!({"Items": items})),
        "updateitem" => {
            updates.push(said(body));
            ("200 OK", json!({}))
        }
        "describetable" => ("200 OK", json!({})),
        _ => panic!("{operation} {body}"),
    };
    let (task, _, left) = worked_in(&touching_plan(), state, task, answer).await;
    assert_eq!((task.done, left), (true, 0), "{task:?}");
    updates.sort();
    (task, updates)
}

#[tokio::test]
async fn an_item_of_which_nothing_becomes_is_not_touched() {
    let items = [
        item("1", "a", "1", None),
        item("2", "b", "2", None),
        item("3", "a", "bad", None),
        // This item was touched before a writer changed its kind.
        item("4", "b", "4", Some("m")),
        item("5", "a", "5", Some("other")),
    ];
    let task = task_of(&touching_plan(), Work::Touch, "src", 0);
    let (task, updates) = updated(&tailing(0), task, &items).await;
    assert_eq!(updates, ["1 REMOVE m", "1 SET m", "4 REMOVE m", "5 REMOVE m", "5 SET m"]);
    assert_eq!((task.counts["touched"], task.counts["refused"]), (3, 1));
    // If the migration was aborted, marks are only removed.
    let given_up = State { stopped: true, ..tailing(0) };
    let task = task_of(&touching_plan(), Work::Touch, "src", 0);
    assert_eq!(updated(&given_up, task, &items).await.1, ["4 REMOVE m"]);
}

#[tokio::test]
async fn marks_left_in_the_sources_are_removed_at_the_end() {
    let mark = |from: &str| {
        let at = format!("/{}", "0".repeat(40));
        json!({"M": {"from": {"S": from}, "at": {"S": at}}})
    };
    // Another migration wrote this item to a table that this migration reads, so its mark stays.
    let mut of_another = item("4", "a", "4", None);
    of_another["_weir"] = mark(r#"src|{"id":{"S":"4"}}"#);
    let items = [
        item("1", "b", "1", Some("m")),
        item("2", "a", "2", Some("*")),
        item("3", "a", "3", Some("other")),
        of_another,
        item("5", "a", "5", None),
    ];
    let ways = [(Phase::Completing, Direction::Forward), (Phase::Reverted, Direction::Reverse)];
    for (phase, direction) in ways {
        let state = State { needs_cleaning: true, ..state(phase, 3) };
        let task = task_of(&touching_plan(), Work::Unmark, "src", 3);
        let task = Task { direction, repairs: false, ..task };
        let (task, updates) = updated(&state, task, &items).await;
        assert_eq!(updates, ["1 REMOVE m", "2 REMOVE *"], "{direction:?}");
        assert_eq!(task.counts["unmarked"], 2, "{direction:?}");
    }
}
