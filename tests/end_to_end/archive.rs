//! Tests of the archive: rows are read, restored, compacted and erased, and the stream's records
//! are redelivered from the beginning. After each step the archive contains the right rows, each
//! once.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::parquet_rows;
use crate::process::{Up, binary, wait_for, weir};

/// The project's declared columns, and a discovered column for every other attribute.
const COLUMNS: &str = "ArchiveColumns=info.rating:decimal(4,1),info.release_date:string,*";
const LIMIT: Duration = Duration::from_secs(90);
/// The number of films that expire, in addition to the films of the cases below.
const FILMS: usize = 30;

/// Runs a subcommand of `weir archive`, and returns the JSON objects that it prints, one per line.
fn archive(up: &Up, arguments: &[&str]) -> Vec<Value> {
    let all = [&["archive"], arguments].concat();
    let output = weir(up.folder.path(), &all);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{all:?}: {} {error}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns all rows of the archive; an empty list while there is no archive yet.
fn rows(up: &Up) -> Vec<Value> {
    parquet_rows::of_table(up, "movies")
}

fn ids(rows: &[Value]) -> BTreeSet<String> {
    let ids: Vec<_> = rows.iter().map(|r| r["_event_id"].as_str().unwrap().to_owned()).collect();
    let distinct: BTreeSet<_> = ids.iter().cloned().collect();
    assert_eq!(distinct.len(), ids.len(), "an event stands twice");
    distinct
}

fn wait_for_rows(up: &Up, count: usize) -> Vec<Value> {
    wait_for(&format!("{count} rows"), LIMIT, || Some(rows(up)).filter(|r| r.len() == count))
}

/// Runs `weir archive check`, which must find no difference between stream and archive, and returns
/// its report.
fn check(up: &Up) -> Value {
    archive(up, &["check", "--table", "movies"]).remove(0)
}

fn seconds(up: &Up) -> u64 {
    let body = up.store.request("GET", "/_weir/clock", "", b"").unwrap().body;
    body["now_ms"].as_u64().unwrap() / 1000
}

/// Returns an expiry time that is `more` seconds in the future, as an attribute value.
fn in_seconds(up: &Up, more: u64) -> Value {
    json!({"N": (seconds(up) + more).to_string()})
}

fn put(up: &Up, title: &str, more: &Value) {
    let mut item = json!({"year": {"N": "2026"}, "title": {"S": title}});
    item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    up.store.ok("PutItem", &json!({"TableName": "movies", "Item": item}));
}

fn key(title: &str) -> Value {
    json!({"year": {"N": "2026"}, "title": {"S": title}})
}

fn get(up: &Up, title: &str) -> Value {
    let request = json!({"TableName": "movies", "Key": key(title), "ConsistentRead": true});
    up.store.ok("GetItem", &request)["Item"].clone()
}

/// Expires all items that expire within an hour, and waits until `left` items remain.
fn expire(up: &Up, left: usize) {
    expire_within(up, 2 * 3600, left);
}

/// Advances the clock by `seconds`, and waits until `left` items remain.
fn expire_within(up: &Up, seconds: u64, left: usize) {
    up.store.advance_clock(seconds * 1000);
    wait_for("the items to expire", LIMIT, || {
        (up.store.scan("movies").len() == left).then_some(())
    });
}

#[test]
fn the_archive_is_restored_from_compacted_and_erased_and_holds_each_event_once() {
    let mut up = Up::start(&["--duplicate-deliveries", "--parameter", COLUMNS]);
    // The following steps happen in the first minutes of an hour, because each part of the archive
    // belongs to an hour.
    up.store.advance_clock((3600 - seconds(&up) % 3600) * 1000);
    let soon = in_seconds(&up, 3600);
    for film in 0..FILMS {
        put(
            &up,
            &format!("Film {film}"),
            &json!({"expires_at": soon, "n": {"N": film.to_string()}}),
        );
    }
    odd_films(&up, &soon);
    let by_hand = json!({"TableName": "movies", "Key": key("By hand")});
    put(&up, "By hand", &json!({"expires_at": soon}));
    up.store.ok("DeleteItem", &by_hand);
    expire(&up, 0);
    let archived = wait_for_rows(&up, FILMS + 3);
    check_odd_films(&archived);
    places(&up);
    // This item is archived in the same hour as the items above, but in another part of the
    // archive.
    put(&up, "Later", &json!({"expires_at": in_seconds(&up, 60)}));
    expire_within(&up, 120, 0);
    let archived = wait_for_rows(&up, FILMS + 4);
    assert_eq!(check(&up)["archived"], FILMS + 4);

    restore(&up, &archived);
    let archived = wait_for_rows(&up, FILMS + 5);
    let equal = check(&up);
    assert_eq!((&equal["restored"], &equal["archived"]), (&json!(1), &json!(FILMS + 5)));

    compact(&up, &archived);
    let left = erase(&up, &archived);
    let left = restore_and_erase(&up, &left);

    // The stream is delivered again from its beginning, as after a mapping was deleted and
    // recreated.
    assert!(up.process.interrupt());
    drop(up.process);
    fs::remove_dir_all(up.folder.path().join(".weir/up/checkpoints")).unwrap();
    up = Up::start_in(up.folder, &["--parameter", COLUMNS]);
    put(&up, "Last", &json!({"expires_at": in_seconds(&up, 3600)}));
    expire(&up, 11);
    let again = wait_for("the last film", LIMIT, || {
        Some(rows(&up)).filter(|rows| rows.iter().any(|row| row["title"] == "Last"))
    });
    wait_for_the_end(&up);
    assert_eq!(ids(&rows(&up)).len(), left.len() + 1);
    assert!(ids(&again).is_superset(&left));
    let equal = check(&up);
    assert_eq!((&equal["erased"], &equal["restored"]), (&json!(3), &json!(3)));
}

/// Checks that a folder takes precedence over environment variables, that DuckDB gets file names,
/// and that the archive's key attributes equal the table's.
fn places(up: &Up) {
    let (folder, s3) = (up.folder.path(), up.path("s3"));
    let mut list = binary("weir");
    list.args(["archive", "ls", "--output", "ndjson", "--folder"]).arg(&s3).current_dir(folder);
    list.env("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1").env("ARCHIVE_BUCKET", "other");
    let listed = list.output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let ddl = weir(folder, &["archive", "ddl", "--engine", "duckdb"]);
    let ddl = String::from_utf8_lossy(&ddl.stdout).into_owned();
    let files = s3.join("archive-bucket/archive/table=movies/**/*.parquet");
    assert!(ddl.contains(&format!("'{}'", files.display())), "{ddl}");
    refused(
        up,
        &["get", "--key", r#"{"year":2026}"#],
        1,
        "`title` is missing; the key is year, title",
    );
    refused(up, &["ls", "--bucket", "nosuch"], 1, "no bucket `nosuch`; buckets are ");
    refused(
        up,
        &["check", "--table", "nosuch"],
        1,
        "unknown table `nosuch`; tables with a stream: ",
    );
}

/// Puts films for a declared column whose value has another type, attributes whose names differ
/// only in case, and every type of value.
fn odd_films(up: &Up, soon: &Value) {
    put(up, "Rated", &json!({"expires_at": soon, "info": {"M": {"rating": {"N": "8.30"}}}}));
    put(
        up,
        "Rated with words",
        &json!({"expires_at": soon, "info": {"M": {"rating": {"S": "good"}}}}),
    );
    let all = json!({
        "expires_at": soon, "Title": {"S": "other"}, "TITLE": {"N": "1"},
        "n": {"N": "12345678901234567890.123456789"}, "b": {"B": "AAEC"}, "f": {"BOOL": false},
        "z": {"NULL": true}, "ns": {"NS": ["1", "2.5"]}, "ss": {"SS": ["a", "b"]}, "l": {"L": [{"N": "0"}]},
    });
    put(up, "All types", &all);
}

fn check_odd_films(rows: &[Value]) {
    let row = |title: &str| rows.iter().find(|row| row["title"] == title).unwrap();
    let rated = row("Rated");
    assert_eq!(rated["info_rating"].to_string().trim_matches('"'), "8.3");
    assert_eq!(rated["_coercions"], json!([]));
    let words = row("Rated with words");
    assert!(words.get("info_rating").is_none_or(Value::is_null), "{words}");
    assert_eq!(words["_coercions"].as_array().unwrap().len(), 1, "{words}");
    assert_eq!(words["_item"]["info"]["M"]["rating"]["S"], "good");
    let all = row("All types");
    assert_eq!(all["_deleted_by"], "ttl");
    let item = &all["_item"];
    assert_eq!((&item["Title"]["S"], &item["TITLE"]["N"]), (&json!("other"), &json!("1")));
    assert_eq!(item["n"]["N"], "12345678901234567890.123456789");
    assert_eq!((&item["b"]["B"], &item["z"]["NULL"]), (&json!("AAEC"), &json!(true)));
    assert_eq!((&item["ns"]["NS"], &item["l"]["L"][0]["N"]), (&json!(["1", "2.5"]), &json!("0")));
    // These columns are not declared but discovered in the items. An attribute with values of two
    // types has two columns.
    assert_eq!((&all["f_bool"], &all["title_s"]), (&json!(false), &json!("other")));
    // This test's JSON parser rounds the value. The archived item has all digits.
    assert_eq!(all["n_n"].as_f64(), Some(12_345_678_901_234_567_890.123_456_789), "{all}");
    assert_eq!(all["ss_ss"], r#"["a","b"]"#);
    assert!(all.get("info_m").is_none_or(Value::is_null) && !words["info_m"].is_null());
}

/// Checks restoring by key, by condition and by prefix. A restored item is put only if no item
/// exists, and has a mark. If it expires unchanged, it is not archived again.
fn restore(up: &Up, archived: &[Value]) {
    put(up, "Film 2", &json!({"n": {"N": "-2"}}));
    let titles = ["--begins-with", "title=Film 2"];
    // The prefix selects the films 2 and 20 to 29.
    let dry = archive(up, &[&["restore"], &titles[..], &["--dry-run"]].concat()).remove(0);
    assert_eq!((&dry["rows"], &dry["restored"]), (&json!(11), &json!(0)), "{dry}");
    let would = ["would_restore", "kept_as_they_are", "written_by_others"].map(|name| &dry[name]);
    assert_eq!(would, [&json!(10), &json!(1), &json!(1)], "{dry}");
    let done = archive(up, &[&["restore"], &titles[..]].concat()).remove(0);
    assert_eq!((&done["restored"], &done["kept_as_they_are"]), (&json!(10), &json!(1)), "{done}");
    assert_eq!(get(up, "Film 2")["n"]["N"], "-2", "what was written meanwhile stays");
    let restored = get(up, "Film 21");
    assert!(restored.get("expires_at").is_none(), "the time to live is stripped: {restored}");
    assert!(restored["_restored"]["M"].is_object(), "{restored}");
    assert_eq!(restored["n"]["N"], "21");
    let again = archive(up, &[&["restore"], &titles[..]].concat()).remove(0);
    assert_eq!(again["restored"], 0, "{again}");

    restore_for_an_hour(up, "Film 5", &[]);
    restore_for_an_hour(up, "Film 6", &[]);
    // An item that is changed after it was restored is archived like any other item.
    let change = json!({
        "TableName": "movies", "Key": key("Film 6"), "UpdateExpression": "SET n = :n",
        "ExpressionAttributeValues": {":n": {"N": "66"}},
    });
    up.store.ok("UpdateItem", &change);
    expire(up, 11);
    let rows = wait_for_rows(up, archived.len() + 1);
    let sixes: Vec<_> = rows.iter().filter(|row| row["title"] == "Film 6").collect();
    assert_eq!(sixes.len(), 2);
    let sixth = r#"{"year":2026,"title":"Film 6"}"#;
    let versions = archive(up, &["get", "--key", sixth]);
    let numbers: Vec<_> = versions.iter().map(|row| row["_item"]["n"]["N"].clone()).collect();
    assert_eq!(numbers, ["6", "66"]);
    let as_of = versions[0]["_deleted_at"].as_str().unwrap();
    let before = archive(up, &["get", "--key", sixth, "--as-of", as_of]);
    assert_eq!(before, versions[..1]);
}

fn restore_for_an_hour(up: &Up, title: &str, from: &[&str]) {
    let key = format!(r#"{{"year":2026,"title":"{title}"}}"#);
    let arguments = ["restore", "--key", &key, "--ttl", "3600"];
    let done = archive(up, &[&arguments, from].concat()).remove(0);
    assert_eq!(done["restored"], 1, "{done}");
}

/// Checks that an item that was restored from the archive is not archived again when it expires
/// unchanged, even if its row was erased in the meantime. An item that was restored from a copy of
/// the archive is archived again, because its archive is unknown. Returns the content of the
/// archive afterwards.
fn restore_and_erase(up: &Up, left: &BTreeSet<String>) -> BTreeSet<String> {
    restore_for_an_hour(up, "Film 5", &[]);
    restore_for_an_hour(up, "Film 7", &[]);
    let copy = up.path("s3");
    restore_for_an_hour(up, "Film 8", &["--folder", copy.to_str().unwrap()]);
    let archive_in = |title: &str| get(up, title)["_restored"]["M"]["archive"].clone();
    assert_eq!(archive_in("Film 5"), json!({"S": "archive-bucket/archive/"}));
    assert_eq!(archive_in("Film 8"), Value::Null);
    let subject = key("Film 5").to_string();
    let arguments = ["erase", "--table", "movies", "--equals", &subject, "--yes"];
    let done = archive(up, &arguments).remove(0)["erased"].clone();
    let gone = erased(up, &done);
    assert!(gone.len() == 1 && gone.is_subset(left), "{done}");
    expire(up, 11);
    wait_for_rows(up, left.len());
    wait_for_the_end(up);
    let rows = rows(up);
    let count = |title: &str| rows.iter().filter(|row| row["title"] == title).count();
    assert_eq!(["Film 5", "Film 7", "Film 8"].map(count), [0, 1, 2]);
    assert_eq!(rows.len(), left.len());
    let equal = check(up);
    assert_eq!((&equal["erased"], &equal["restored"]), (&json!(3), &json!(3)));
    ids(&rows)
}

/// Waits until every existing record was delivered.
fn wait_for_the_end(up: &Up) {
    wait_for("everything to be worked off", LIMIT, || {
        let status = weir(up.folder.path(), &["status", "--exit-code"]);
        (status.status.code() == Some(0)).then_some(())
    });
}

/// Checks that compaction turns the two parts of the first hour into one object with the same rows
/// and their lineage, and that a second run changes nothing.
fn compact(up: &Up, archived: &[Value]) {
    let arguments = ["compact", "--table", "movies", "--nothing-is-archiving"];
    let done = archive(up, &arguments).remove(0)["compacted"].clone();
    assert_eq!((&done["rows"], &done["complete"]), (&json!(FILMS + 4), &json!(true)), "{done}");
    assert_eq!(done["objects_written"], 1, "{done}");
    assert!(done["parts_replaced"].as_u64() >= Some(2), "{done}");
    let again = archive(up, &arguments).remove(0)["compacted"].clone();
    assert_eq!((&again["objects_written"], &again["rows"]), (&json!(0), &json!(0)), "{again}");
    let by_id = |rows: &[Value]| {
        let mut rows: Vec<_> = rows.iter().map(Value::to_string).collect();
        rows.sort();
        rows
    };
    assert_eq!(by_id(&rows(up)), by_id(archived));
    check(up);
}

/// Erases both versions of one film with a receipt that contains no key. Returns the remaining
/// rows.
fn erase(up: &Up, archived: &[Value]) -> BTreeSet<String> {
    let subject = key("Film 6").to_string();
    let unsure = ["erase", "--table", "movies", "--equals", &subject];
    let dry = archive(up, &[&unsure[..], &["--dry-run"]].concat()).remove(0);
    assert_eq!((&dry["rows"], &dry["objects"]), (&json!(2), &json!(2)), "{dry}");
    // Without a terminal, the command cannot ask for confirmation, so the confirmation must be a
    // flag.
    refused(up, &unsure, 4, "erases 2 rows of `movies`");
    let other = ["erase", "--table", "moviez", "--equals", &subject, "--yes"];
    refused(up, &other, 4, "has no table `moviez`; tables are movies");
    let mistaken = ["erase", "--table", "movies", "--begins-with", "titel=Film", "--yes"];
    refused(up, &mistaken, 3, "no row has `titel` beginning with `Film`; nothing was erased");
    assert_eq!(receipts(up), [""; 0]);
    let arguments = [&unsure[..], &["--yes"]].concat();
    let done = archive(up, &arguments).remove(0)["erased"].clone();
    let gone = erased(up, &done);
    assert_eq!(gone.len(), 2, "{done}");
    // The test advanced the store's clock, but not the clock of the function.
    let seconds = ["erased_seconds", "store_seconds"].map(|name| done[name].as_u64().unwrap());
    assert!(seconds[1] > seconds[0] + 10, "{done}");
    let logs = weir(up.folder.path(), &["logs", "archive-maintenance"]);
    let said = String::from_utf8_lossy(&logs.stderr).into_owned();
    assert!(said.contains("this machine's clock; the store's clock is "), "{said}");
    refused(up, &arguments, 3, "nothing was erased");
    let left = ids(&rows(up));
    assert_eq!(left, ids(archived).difference(&gone).cloned().collect());
    let receipts = receipts(up);
    assert!(!receipts.is_empty());
    assert!(receipts.iter().all(|text| !text.contains("Film 6")), "{receipts:?}");
    assert_eq!(check(up)["erased"], 2);
    left
}

/// Returns the erased rows from the receipt that an answer refers to.
fn erased(up: &Up, answer: &Value) -> BTreeSet<String> {
    let receipt = up.path("s3").join("archive-bucket").join(answer["receipt"].as_str().unwrap());
    let receipt: Value = serde_json::from_str(&fs::read_to_string(receipt).unwrap()).unwrap();
    let named: BTreeSet<String> = serde_json::from_value(receipt["eventIds"].clone()).unwrap();
    assert_eq!(answer["rows"], json!(named.len()), "{answer}");
    assert_eq!(answer["eventIds"], Value::Null);
    named
}

/// Runs a subcommand of `weir archive` that must fail with this exit code and message, and change
/// nothing.
fn refused(up: &Up, arguments: &[&str], code: i32, words: &str) {
    let output = weir(up.folder.path(), &[&["archive"], arguments].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.contains(words), "{arguments:?}: {said}");
}

fn receipts(up: &Up) -> Vec<String> {
    fn files(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => files(&path, found),
                path => found.push(fs::read_to_string(path).unwrap()),
            }
        }
    }
    let mut found = Vec::new();
    for bucket in fs::read_dir(up.path("s3")).unwrap().flatten() {
        files(&bucket.path().join("erasures"), &mut found);
    }
    found
}
