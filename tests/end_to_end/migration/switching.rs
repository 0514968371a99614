//! Tests of switches that do not succeed: the command that blocks writers is killed, interrupted or
//! superseded by another command, or it finds a write that the plan cannot transform.

use std::time::Duration;

use serde_json::{Value, json};

use crate::migration::driver::{LIMIT, Migrating, PLAN, SECOND_MS};
use crate::process::{LocalStore, Process, binary, wait_for};

impl Migrating<'_> {
    /// Sets members of an entry in the control table, to simulate a killed process.
    fn leave(&self, entry: &str, members: &[(&str, Value)]) {
        let sets: Vec<String> =
            (0..members.len()).map(|place| format!("#n{place} = :v{place}")).collect();
        let names = members.iter().enumerate();
        let names: Value =
            names.map(|(place, (name, _))| (format!("#n{place}"), json!(name))).collect();
        let values = members.iter().enumerate();
        let values: Value =
            values.map(|(place, (_, value))| (format!(":v{place}"), value.clone())).collect();
        self.store.endpoint.ok(
            "UpdateItem",
            &json!({
                "TableName": "weir-migrations",
                "Key": {"migration": {"S": "move"}, "entry": {"S": entry}},
                "UpdateExpression": format!("SET {}", sets.join(", ")),
                "ExpressionAttributeNames": names, "ExpressionAttributeValues": values,
            }),
        );
    }

    fn delete(&self, number: usize) {
        let key = json!({"p": {"S": format!("n{number:03}")}});
        self.store.endpoint.ok("DeleteItem", &json!({"TableName": "cats", "Key": key}));
    }

    /// Starts a cut-over in the background, and waits until it blocks writers.
    fn holding(&self, log: &str, seconds: &str) -> Process {
        let mut command = binary("weir");
        let url = format!("http://{}", self.store.endpoint.address());
        command.args(["migrate", "--endpoint", &url, "cutover", "move", "--timeout", seconds]);
        command.arg("--without-followers");
        let cutover = Process::start(
            {
                command.current_dir(self.folder);
                command
            },
            self.folder.join(log),
        );
        wait_for("writers to be blocked", LIMIT, || {
            (self.status()["route"]["write"] == "none").then_some(())
        });
        cutover
    }

    fn is_as_it_was(&self) {
        let status = self.status();
        let route = (&status["route"]["read"], &status["route"]["write"]);
        assert_eq!(route, (&json!("source"), &json!("source")), "{status}");
        assert_eq!(status["phase"], "ready", "{status}");
    }
}

/// Returns the worker of a migration that is ready to switch.
fn ready(migrating: &Migrating<'_>, plan: &str) -> Process {
    migrating.prepare(1_000, plan);
    (0..10).for_each(|number| migrating.put(number, 10));
    let mut worker = migrating.work("start", "plan.yaml");
    migrating.wait_for_phase("tailing", &mut worker, |_| {});
    migrating.ok(&["verify", "move"]);
    worker
}

#[test]
fn a_failed_cut_over_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    let mut worker = ready(&migrating, PLAN);
    // No worker applies this change, so the streams are not drained. The clock is frozen, so that
    // the change stays recent and a worker could apply it.
    worker.kill();
    migrating.clock(&json!({"freeze": true}));
    migrating.put(100, 10);
    let cutover = ["cutover", "move", "--timeout", "1", "--without-followers"];
    let (code, said) = migrating.verb(&cutover);
    assert!(code == 5 && said.contains("nothing has changed"), "{code}: {said}");
    migrating.is_as_it_was();

    let mut interrupted = migrating.holding("interrupted.log", "60");
    assert!(!interrupted.interrupt());
    assert!(interrupted.log().contains("nothing has changed"), "{}", interrupted.log());
    migrating.is_as_it_was();

    // After the command was killed, writers stay blocked and no comparison runs. Repeating the
    // command resumes it.
    migrating.holding("killed.log", "60").kill();
    assert_eq!(migrating.status()["phase"], "cutting-over");
    let (code, said) = migrating.verb(&["verify", "move"]);
    assert!(code == 4 && said.contains("replaces that command"), "{code}: {said}");
    let (code, _) = migrating.verb(&["cutover", "move", "--timeout", "1"]);
    assert_eq!(code, 5);
    migrating.is_as_it_was();

    // With two concurrent commands, the second supersedes the first, and `abort` supersedes the
    // second.
    let mut first = migrating.holding("first.log", "5");
    let mut second = migrating.holding("second.log", "10");
    wait_for("the first one to see it", LIMIT, || first.has_ended().then_some(()));
    assert!(first.log().contains("another command is already carrying out"), "{}", first.log());
    migrating.ok(&["abort", "move"]);
    wait_for("the second one to see it", LIMIT, || second.has_ended().then_some(()));
    let status = migrating.status();
    assert_eq!(
        (&status["phase"], &status["route"]["write"]),
        (&json!("aborted"), &json!("source"))
    );
    let (code, said) = migrating.verb(&["start", "plan.yaml"]);
    assert!(code == 4 && said.contains("give the plan another name"), "{code}: {said}");
}

#[test]
fn writers_are_not_blocked_for_a_change_that_no_worker_applies() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    let without_inverse = PLAN.replace("inverse:\n  - table: pets\n    items: [{to: cats}]\n", "");
    let mut worker = ready(&migrating, &without_inverse);
    // A pause affects only the backfill, not comparisons.
    migrating.ok(&["pause", "move"]);
    migrating.ok(&["verify", "move"]);
    migrating.ok(&["resume", "move"]);
    let status = migrating.status();
    assert_eq!((&status["phase"], &status["has_way_back"]), (&json!("ready"), &json!(false)));
    let (code, said) = migrating.verb(&["cutover", "move"]);
    assert!(code == 4 && said.contains("add --no-way-back"), "{code}: {said}");

    worker.kill();
    migrating.put(100, 10);
    store.endpoint.advance_clock(60 * SECOND_MS);
    let status = migrating.status();
    assert_eq!(status["stream"]["unfollowed"], "cats", "{status}");
    let epoch = status["route"]["epoch"].clone();
    let cutover = ["cutover", "move", "--no-way-back", "--timeout", "1"];
    let (code, said) = migrating.verb(&cutover);
    let words = "of table `cats`, has been waiting for ";
    assert!(code == 5 && said.contains(words) && said.contains("migrate work move"), "{said}");
    migrating.is_as_it_was();
    assert_eq!(migrating.status()["route"]["epoch"], epoch);

    let _worker = migrating.work("work", "move");
    let cutover = ["cutover", "move", "--no-way-back"];
    migrating.ok(&cutover);
    let (code, said) = migrating.verb(&["wait", "move", "--for", "ended"]);
    assert!(code == 1 && said.contains("completed, aborted"), "{said}");
    let (code, said) = migrating.verb(&["journal", "mvoe"]);
    assert!(code == 1 && said.contains("unknown migration `mvoe`"), "{said}");
}

#[test]
fn a_cut_over_requires_a_follower_of_the_reverse_direction() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    let mut worker = ready(&migrating, PLAN);
    worker.kill();
    // After 60 s, the last status reports of the workers are too old to count.
    store.endpoint.advance_clock(60 * SECOND_MS);
    let pets = store.endpoint.scan("pets");
    let (code, said) = migrating.verb(&["cutover", "move", "--timeout", "1"]);
    let words = "no function read the stream of `pets`";
    assert!(code == 5 && said.contains(words) && said.contains("--without-followers"), "{said}");
    migrating.is_as_it_was();
    assert_eq!(store.endpoint.scan("pets"), pets);
    // A cut-over succeeds while a worker runs, even if the worker has nothing to apply.
    let _worker = migrating.work("work", "move");
    migrating.ok(&["cutover", "move"]);
    assert_eq!(store.endpoint.scan("pets"), pets);
}

#[test]
fn a_committed_cut_over_is_only_completed() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    let _worker = ready(&migrating, PLAN);
    migrating.ok(&["cutover", "move"]);
    // Simulate a cut-over that was killed after it was committed, when writers already use the
    // targets.
    migrating.leave("STATE", &[("phase", json!({"S": "turning"}))]);
    let pet = json!({"p": {"S": "n001"}, "text": {"S": "of the targets"}});
    store.endpoint.ok("PutItem", &json!({"TableName": "pets", "Item": pet}));
    let (code, said) = migrating.verb(&["abort", "move"]);
    assert!(code == 4 && said.contains("run `weir migrate"), "{code}: {said}");
    migrating.ok(&["cutover", "move"]);
    let status = migrating.status();
    assert_eq!(
        (&status["phase"], &status["route"]["write"]),
        (&json!("cut-over"), &json!("target"))
    );
    // Simulate a revert that was killed after it was committed.
    migrating.ok(&["revert", "move"]);
    migrating.leave("STATE", &[("phase", json!({"S": "returning"}))]);
    migrating.ok(&["revert", "move"]);
    let cats = store.endpoint.scan("cats");
    assert!(cats.contains(&pet), "{cats:?}");
    assert_eq!(migrating.status()["phase"], "reverted");
}

const PICKY: &str = "migration: move
kind: restructure
from:
  - table: cats
    items: [{to: pets, transform: 'if .text == \"\" then error(\"no text\") else . end'}]
segments: 2
gate_seconds: 0
function_seconds: 10
";

#[test]
fn items_refused_after_the_comparison_block_a_cut_over() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    let _worker = ready(&migrating, PICKY);
    let refused = |why: &str| {
        let (code, said) = migrating.verb(&["cutover", "move", "--no-way-back"]);
        assert!(code == 4 && said.contains(why), "{code}: {said}");
        migrating.is_as_it_was();
    };
    migrating.put(3, 0);
    refused("cannot be transformed");
    migrating.delete(3);
    refused("a target of an earlier version still exists");
    let (code, said) = migrating.verb(&["verify", "move"]);
    assert!(code == 3 && said.contains("1 extra"), "{code}: {said}");
    migrating.ok(&["verify", "move", "--repair"]);
    migrating.ok(&["cutover", "move", "--no-way-back"]);
    let pets = store.endpoint.scan("pets");
    let live = pets.iter().filter(|item| item["_weir"]["M"].get("gone").is_none()).count();
    assert_eq!((pets.len(), live), (10, 9), "{pets:?}");
}

#[test]
fn lost_records_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    let _worker = ready(&migrating, PLAN);
    // The function ignores a record, as if its mapping had discarded the record.
    let key = json!({"migration": {"S": "*"}, "entry": {"S": "ACTIVE"}});
    let request = json!({"TableName": "weir-migrations", "Key": key, "ConsistentRead": true});
    let active = store.endpoint.ok("GetItem", &request)["Item"].clone();
    let mut none = active.clone();
    none["active"] = json!({"M": {}});
    let put = |item: &Value| {
        store.endpoint.ok("PutItem", &json!({"TableName": "weir-migrations", "Item": item}));
    };
    put(&none);
    migrating.put(50, 10);
    std::thread::sleep(Duration::from_secs(5));
    put(&active);

    // A repair makes the target equal to the source, but this does not prove that the record was
    // applied.
    let said = migrating.ok(&["verify", "move", "--repair"]);
    assert!(said.contains("1 missing"), "{said}");
    let (code, said) = migrating.verb(&["cutover", "move", "--timeout", "1"]);
    assert!(code == 5 && said.contains("a record has not been applied to"), "{code}: {said}");
    store.endpoint.advance_clock(2 * 60 * SECOND_MS);
    let said = migrating.ok(&["verify", "move", "--repair"]);
    assert!(said.contains("repaired from stream records that had not been applied"), "{said}");
    migrating.ok(&["cutover", "move"]);
    assert_eq!(store.endpoint.scan("pets").len(), 11);
}
