//! Tests of `weir load` against a store: invalid lines are reported and set aside, and all other
//! lines are loaded. A count that was killed and repeated counts each line once.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::process::{LocalStore, Process, binary, wait_for, weir};
use crate::wire::Endpoint;

/// The number of lines that are counted: enough that a count takes some seconds.
const LINES: u64 = 4_000;
/// The number of loads that are ended early: the last load by Ctrl-C, the others by `kill -9`.
const ENDED_EARLY: u32 = 6;
/// The maximum time in milliseconds from the first counted line of a load until it is ended.
const MOMENTS_MS: u64 = 300;
const LOAD_MAX: Duration = Duration::from_secs(120);

#[test]
fn bad_lines_are_put_aside_with_their_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    store.endpoint.create_table("things");
    let url = format!("http://{}", store.endpoint.address());
    let csv = "p,zip,n\na,01234,1.50\n,99,2\nb,99,x\na,5,3\n";
    fs::write(folder.path().join("things.csv"), csv).unwrap();
    let arguments = [
        "load",
        "--endpoint",
        &url,
        "--table",
        "things",
        "--format",
        "csv",
        "--types",
        "n:N",
        "things.csv",
    ];
    let loaded = weir(folder.path(), &arguments);
    let said = String::from_utf8_lossy(&loaded.stderr).into_owned();
    assert_eq!(loaded.status.code(), Some(3), "{said}");
    assert_eq!(String::from_utf8_lossy(&loaded.stdout), "2 loaded into things, 2 put aside\n");
    assert!(said.contains("things.csv:3: ") && said.contains("things.csv:4: column `n`"), "{said}");
    let aside = fs::read_to_string(folder.path().join(".weir/put-aside.ndjson")).unwrap();
    let aside: Vec<Value> = aside.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(aside.len(), 2);
    assert!(aside.iter().any(|row| row["line"] == 4 && row["text"] == "b,99,x"), "{aside:?}");
    let again = weir(folder.path(), &[&arguments[..], &["--output", "json"]].concat());
    assert_eq!(again.status.code(), Some(3));
    let report: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(report["schema"], "weir.load/v1", "{report}");
    assert_eq!(report["loaded"], 2, "{report}");
    assert_eq!(report["put_aside_file"], ".weir/put-aside.ndjson", "{report}");
    let items = store.endpoint.scan("things");
    assert_eq!(items.len(), 1, "the last line with a key wins");
    assert_eq!(items[0]["zip"]["S"], "5", "a column with a leading zero stays text");
    assert_eq!(items[0]["n"]["N"], "3");

    let array = r#"[{"p":"c"}]"#;
    fs::write(folder.path().join("things.json"), array).unwrap();
    // `weir load` loads a JSON array correctly, with and without `--format ndjson`.
    let begin = ["load", "--endpoint", &url, "--table", "things"];
    let loaded =
        weir(folder.path(), &[&begin[..], &["--format", "ndjson", "things.json"]].concat());
    assert_eq!(loaded.status.code(), Some(0), "{}", String::from_utf8_lossy(&loaded.stderr));
    assert_eq!(store.endpoint.scan("things").len(), 2);
    let wrong: [(&[&str], &str); 2] = [
        (
            &["--format", "csv", "--count-into", "{p}#{nope}", "--voter", "p", "things.csv"],
            "no column `nope`; columns are p, zip, n",
        ),
        (&["--format", "dynamodb-json", "things.csv"], "nothing was loaded"),
    ];
    for (flags, words) in wrong {
        let refused = weir(folder.path(), &[&begin[..], flags].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{flags:?}: {said}");
        assert!(said.contains(words), "{flags:?}: {said}");
    }
    let before = folder.path().join(".weir/put-aside.before.ndjson");
    assert_eq!(fs::read_to_string(before).unwrap().lines().count(), 2, "as they were");

    let missing = weir(
        folder.path(),
        &["load", "--endpoint", &url, "--table", "nothing", "--format", "csv", "things.csv"],
    );
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot describe table `nothing`"));
}

fn points(line: u64) -> u64 {
    line % 12 + 1
}

/// Returns the sum of the slots of a table.
fn counted(endpoint: &Endpoint) -> u64 {
    let votes = |slot: &Value| slot["votes"]["N"].as_str()?.parse::<u64>().ok();
    endpoint.scan("votes").iter().filter_map(votes).sum()
}

/// Begins a count and ends it at a random moment while it counts. Returns its output.
fn ended_early(folder: &Path, arguments: &[&str], endpoint: &Endpoint, number: u32) -> String {
    let before = counted(endpoint);
    let mut command = binary("weir");
    command.args(arguments).current_dir(folder);
    let mut load = Process::start(command, folder.join(format!("load-{number}.log")));
    wait_for("a line to be counted", LOAD_MAX, || {
        (counted(endpoint) > before || load.has_ended()).then_some(())
    });
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let moment = u64::from(clock.subsec_micros()) % MOMENTS_MS;
    println!("load {number} is ended {moment} ms after its first line");
    thread::sleep(Duration::from_millis(moment));
    assert!(!load.has_ended(), "it should take longer: {}", load.log());
    if number + 1 < ENDED_EARLY {
        load.kill();
    } else {
        assert!(!load.interrupt(), "Ctrl-C is no success");
    }
    load.log()
}

#[test]
fn a_count_that_is_killed_anywhere_counts_each_line_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    store.endpoint.create_table("votes");
    let url = format!("http://{}", store.endpoint.address());
    let lines = (1..=LINES).map(|line| format!("poll-{},{line},{}\n", line % 7, points(line)));
    let csv = format!("poll,voter,points\n{}", lines.collect::<String>());
    fs::write(folder.path().join("points.csv"), csv).unwrap();
    let arguments = [
        "load",
        "--endpoint",
        &url,
        "--table",
        "votes",
        "--count-into",
        "{poll}",
        "--voter",
        "voter",
        "--amount",
        "points",
        "--output",
        "json",
        "points.csv",
    ];
    let all: u64 = (1..=LINES).map(points).sum();
    let mut said = String::new();
    for number in 0..ENDED_EARLY {
        said = ended_early(folder.path(), &arguments, &store.endpoint, number);
        assert!(counted(&store.endpoint) < all, "each was ended before its last line");
    }
    assert!(said.contains("interrupted: ") && said.contains(" loaded"), "how far it got: {said}");
    assert!(said.contains("counted lines are skipped"), "how to resume: {said}");
    // The first run counts the remaining lines, and the second run finds nothing to count.
    for is_first in [true, false] {
        let loaded = weir(folder.path(), &arguments);
        let said = String::from_utf8_lossy(&loaded.stderr).into_owned();
        assert_eq!(loaded.status.code(), Some(0), "{said}");
        let report: Value = serde_json::from_slice(&loaded.stdout).unwrap();
        let of = |name: &str| report[name].as_u64().unwrap();
        assert_eq!(of("loaded") + of("counted_before"), LINES, "{report}");
        assert!(of("counted_before") > 0 && (of("loaded") > 0) == is_first, "{report}");
        assert_eq!(counted(&store.endpoint), all);
    }
}
