//! The ring as text: its nodes with their numbers of arcs, the arcs with their nodes, and the moves under way.

use std::fmt::Write as _;

use serde_json::Value;

use super::columns::align;

/// Returns the ring in the JSON of the admin endpoint as text.
pub(super) fn render(ring: &Value) -> String {
    let list = |name: &str| ring.get(name).and_then(Value::as_array).into_iter().flatten();
    let show = |value: &Value, name: &str| match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(value) => value.to_string(),
    };
    let mut rows = vec![["NODE", "ADDRESS", "ARCS", "NOTES"].map(str::to_owned).to_vec()];
    for node in list("nodes") {
        let leaves = node.get("leaving").and_then(Value::as_bool) == Some(true);
        let note = if leaves { "leaves: its arcs move to other nodes" } else { "" };
        let columns = ["node", "address", "arcs"].map(|name| show(node, name));
        rows.push(columns.into_iter().chain([note.to_owned()]).collect());
    }
    let mut text = align(&rows);
    for arc in list("arcs") {
        let moves = arc.get("moves").and_then(Value::as_bool) == Some(true);
        let note = match moves {
            true => format!(", moves from {}{}", numbers(arc, "voters"), progress(arc)),
            false if arc.get("voters").is_none_or(Value::is_null) => ", no leader".to_owned(),
            false => String::new(),
        };
        let _ = writeln!(text, "arc {}: nodes {}{note}", show(arc, "arc"), numbers(arc, "nodes"));
    }
    text
}

/// Returns the progress of an arc's transfers: what was sent to each node, and how long the rest takes.
fn progress(arc: &Value) -> String {
    let mut text = String::new();
    for transfer in arc.get("transfers").and_then(Value::as_array).into_iter().flatten() {
        let number = |name: &str| transfer.get(name).and_then(Value::as_u64);
        let mb = |name: &str| number(name).unwrap_or(0) / 1_000_000;
        let _ = write!(
            text,
            "; sent to {}: {} of about {} MB",
            number("to").unwrap_or(0),
            mb("sent_bytes"),
            mb("estimated_bytes")
        );
        if let Some(left) = number("estimated_ms_left") {
            let _ = write!(text, ", about {} s left", left.div_ceil(1_000));
        }
    }
    text
}

fn numbers(arc: &Value, name: &str) -> String {
    let numbers = arc.get(name).and_then(Value::as_array).into_iter().flatten();
    numbers.map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_ring_is_shown_with_its_moves() {
        let ring = json!({
            "nodes": [
                {"node": 1, "address": "127.0.0.1:9001", "arcs": 2, "leaving": false},
                {"node": 2, "address": "127.0.0.1:9002", "arcs": 0, "leaving": true},
            ],
            "arcs": [
                {"arc": 0, "nodes": [1, 3, 4], "voters": [1, 2, 3], "moves": true, "transfers": [
                    {"to": 4, "sent_bytes": 12_400_000, "estimated_bytes": 40_000_000, "estimated_ms_left": 7_300},
                    {"to": 5, "sent_bytes": 0, "estimated_bytes": 40_000_000, "estimated_ms_left": null},
                ]},
                {"arc": 1, "nodes": [3, 4, 1], "voters": [1, 3, 4], "moves": false},
                {"arc": 2, "nodes": [1, 3, 4], "voters": null, "moves": false},
            ],
        });
        let expected = "\
NODE  ADDRESS         ARCS  NOTES
1     127.0.0.1:9001  2
2     127.0.0.1:9002  0     leaves: its arcs move to other nodes
arc 0: nodes 1, 3, 4, moves from 1, 2, 3; sent to 4: 12 of about 40 MB, about 8 s left; sent to 5: 0 of about 40 MB
arc 1: nodes 3, 4, 1
arc 2: nodes 1, 3, 4, no leader
";
        let shown: Vec<String> =
            render(&ring).lines().map(|line| line.trim_end().to_owned()).collect();
        assert_eq!(shown.join("\n") + "\n", expected);
    }
}
