//! `weir load` against a store: bad lines are reported and put aside, the others are loaded.

use std::fs;

use serde_json::Value;

use crate::process::{LocalStore, weir};

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
    // An array is an array, regardless of the flag.
    let begin = ["load", "--endpoint", &url, "--table", "things"];
    let loaded =
        weir(folder.path(), &[&begin[..], &["--format", "ndjson", "things.json"]].concat());
    assert_eq!(loaded.status.code(), Some(0), "{}", String::from_utf8_lossy(&loaded.stderr));
    assert_eq!(store.endpoint.scan("things").len(), 2);
    let wrong: [(&[&str], &str); 2] = [
        (
            &["--format", "csv", "--count-into", "{p}#{nope}", "--voter", "p", "things.csv"],
            "no column `nope`; it has p, zip, n",
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
