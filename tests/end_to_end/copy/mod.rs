//! Tests of `weir copy` between two stores, while clients write to the source.

use std::collections::BTreeMap;
use std::fs;
use std::process::Output;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{LocalStore, Process, binary, wait_for, weir};
use crate::wire::{Answer, Endpoint};

const LIMIT: Duration = Duration::from_secs(90);
/// The number of items before the first copy: enough that a copy can be killed before it is complete.
const ITEMS: usize = 3_000;
const WRITERS: usize = 4;
/// The number of keys of each writer, few enough that each key is written many times.
const KEYS: usize = 40;

/// The expected items, by key.
type Items = BTreeMap<String, Value>;

struct Stores {
    folder: tempfile::TempDir,
    source: LocalStore,
    target: LocalStore,
}

impl Stores {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let folder = folder.path().join(name);
            fs::create_dir(&folder).unwrap();
            LocalStore::start(&folder)
        };
        let (source, target) = (open("source"), open("target"));
        Self { folder, source, target }
    }

    fn arguments(&self, flags: &[&str]) -> Vec<String> {
        let [from, to] = [&self.source, &self.target]
            .map(|store| format!("http://{}", store.endpoint.address()));
        let words = ["copy", "--from", &from, "--to", &to].map(str::to_owned);
        words.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned())).collect()
    }

    /// Starts `weir copy`, which follows the changes until it is ended.
    fn begin(&self, log: &str) -> Process {
        let mut command = binary("weir");
        command.args(self.arguments(&[])).current_dir(self.folder.path());
        Process::start(command, self.folder.path().join(log))
    }

    /// Runs `weir copy` to its end.
    fn run(&self, flags: &[&str]) -> (i32, String) {
        let arguments = self.arguments(flags);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let Output { status, stdout, stderr } = weir(self.folder.path(), &arguments);
        let said = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        (status.code().unwrap(), said)
    }
}

/// Creates the table `votes` with an index, a stream, a tag and TTL.
fn create_votes(store: &Endpoint) {
    let attribute = |name: &str, kind: &str| json!({"AttributeName": name, "AttributeType": kind});
    let key = |name: &str, kind: &str| json!({"AttributeName": name, "KeyType": kind});
    let table = json!({
        "TableName": "votes", "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [attribute("p", "S"), attribute("n", "N")],
        "KeySchema": [key("p", "HASH"), key("n", "RANGE")],
        "GlobalSecondaryIndexes": [{
            "IndexName": "by_n", "KeySchema": [key("n", "HASH")],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }],
        "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_IMAGE"},
        "Tags": [{"Key": "team", "Value": "polls"}],
    });
    store.ok("CreateTable", &table);
    let ttl = json!({
        "TableName": "votes",
        "TimeToLiveSpecification": {"AttributeName": "expires", "Enabled": true},
    });
    store.ok("UpdateTimeToLive", &ttl);
}

fn fill(store: &Endpoint, expected: &mut Items) {
    let numbers: Vec<usize> = (0..ITEMS).collect();
    for some in numbers.chunks(25) {
        let puts = some.iter().map(|number| {
            let item = json!({"p": {"S": format!("old-{number}")}, "size": {"N": "1"}});
            expected.insert(format!("old-{number}"), item.clone());
            json!({"PutRequest": {"Item": item}})
        });
        let puts: Vec<Value> = puts.collect();
        store.ok("BatchWriteItem", &json!({"RequestItems": {"things": puts}}));
    }
}

fn was_handed_over(answer: &Answer) -> bool {
    answer.status == 400 && answer.message().contains("was copied to")
}

/// Writes items in many ways until the store refuses writes. Returns the items that must exist according to
/// the acknowledged writes.
fn write_until_refused(store: &Endpoint, writer: usize) -> (Items, usize) {
    let (mut items, mut acknowledged) = (Items::new(), 0);
    for round in 0_usize.. {
        let key = format!("new-{writer}-{}", round * 7 % KEYS);
        let item = json!({"p": {"S": key}, "round": {"N": round.to_string()}});
        let named = |extra: Value| {
            let mut request = json!({"TableName": "things", "Key": {"p": {"S": key}}});
            request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            request
        };
        let put = json!({"TableName": "things", "Item": item});
        let (operation, request, after) = match round % 4 {
            0 => ("PutItem", put, Some(item)),
            1 => ("DeleteItem", named(json!({})), None),
            2 => {
                let mut put = put;
                put["ConditionExpression"] = json!("attribute_not_exists(p)");
                let kept = items.get(&key).cloned();
                ("PutItem", put, kept.or(Some(item)))
            }
            _ => {
                let update = json!({
                    "UpdateExpression": "SET #r = :r",
                    "ExpressionAttributeNames": {"#r": "round"},
                    "ExpressionAttributeValues": {":r": {"N": round.to_string()}},
                });
                ("UpdateItem", named(update), Some(item))
            }
        };
        let answer = store.send(operation, &request);
        match answer.status {
            200 => acknowledged += 1,
            _ if answer.error() == "ConditionalCheckFailedException" => {}
            _ => {
                assert!(was_handed_over(&answer), "{operation}: {}", answer.body);
                return (items, acknowledged);
            }
        }
        match after {
            Some(item) => items.insert(key, item),
            None => items.remove(&key),
        };
    }
    unreachable!("the loop ends with a refused write")
}

fn items_of(store: &Endpoint, table: &str) -> Items {
    let items = store.scan(table).into_iter();
    items.map(|item| (item["p"]["S"].as_str().unwrap().to_owned(), item)).collect()
}

/// Kills a copy while it copies the items. Returns the number of items at the target.
fn kill_early(stores: &Stores) -> usize {
    let mut copy = stores.begin("killed.log");
    let count = json!({"TableName": "things", "Select": "COUNT"});
    let some = wait_for("the first items", LIMIT, || {
        let answer = stores.target.endpoint.send("Scan", &count);
        answer.body["Count"].as_u64().filter(|count| *count > 0)
    });
    copy.kill();
    usize::try_from(some).unwrap()
}

/// Goal: no acknowledged write is lost. Method: writers write until the source refuses; the copy is killed
/// and repeated; an item is deleted between the two runs, so no stream that is followed has the record.
#[test]
fn no_acknowledged_write_is_lost() {
    let stores = Stores::start();
    let (source, target) = (&stores.source.endpoint, &stores.target.endpoint);
    source.create_table("things");
    create_votes(source);
    let vote = json!({"p": {"S": "a"}, "n": {"N": "1"}, "expires": {"N": "4000000000"}});
    source.ok("PutItem", &json!({"TableName": "votes", "Item": vote}));
    target.create_table("other");
    target.ok("PutItem", &json!({"TableName": "other", "Item": {"p": {"S": "kept"}}}));
    let mut expected = Items::new();
    fill(source, &mut expected);

    let begun = kill_early(&stores);
    assert!(begun < ITEMS, "the copy was complete before it was killed");
    // The target has one of the deleted items.
    for key in items_of(target, "things").into_keys().chain(["old-0".to_owned()]).take(3) {
        source.ok("DeleteItem", &json!({"TableName": "things", "Key": {"p": {"S": key}}}));
        expected.remove(&key);
    }
    let (written, (code, said)) = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write_until_refused(source, writer)))
            .collect();
        let ended = stores.run(&["--hand-over"]);
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        (written, ended)
    });
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("in step") && said.contains("the copy is complete"), "{said}");
    let mut acknowledged = 0;
    for (items, count) in written {
        expected.extend(items);
        acknowledged += count;
    }
    println!("{acknowledged} writes were acknowledged during the copy");
    assert!(acknowledged > 100, "only {acknowledged}");
    let found = items_of(target, "things");
    assert_eq!(found.len(), expected.len());
    assert!(found == expected, "the items differ");
    assert_eq!(target.scan("votes"), [vote]);
    assert_eq!(target.scan("other").len(), 1, "a table that the source does not have");
    check_settings(target);
    repeat_after_the_end(&stores);
}

/// Checks that a copied table has the settings of its source.
fn check_settings(target: &Endpoint) {
    let table = &target.ok("DescribeTable", &json!({"TableName": "votes"}))["Table"];
    assert_eq!(table["StreamSpecification"]["StreamViewType"], "NEW_IMAGE");
    assert_eq!(table["GlobalSecondaryIndexes"][0]["IndexName"], "by_n");
    assert_eq!(table["BillingModeSummary"]["BillingMode"], "PAY_PER_REQUEST");
    let tags = target.ok("ListTagsOfResource", &json!({"ResourceArn": table["TableArn"]}));
    let tags: BTreeMap<&str, &str> = tags["Tags"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tag| (tag["Key"].as_str().unwrap(), tag["Value"].as_str().unwrap()))
        .collect();
    assert_eq!(tags.len(), 2, "{tags:?}");
    assert_eq!(tags["team"], "polls");
    assert!(tags["weir:copy-of"].ends_with("/complete"), "{tags:?}");
    let ttl = target.ok("DescribeTimeToLive", &json!({"TableName": "votes"}));
    assert_eq!(ttl["TimeToLiveDescription"]["AttributeName"], "expires");
    let plain = &target.ok("DescribeTable", &json!({"TableName": "things"}))["Table"];
    assert_eq!(plain["StreamSpecification"], Value::Null, "the copy's own stream of the source");
}

/// Goal: a repetition after the end does not overwrite what clients wrote to the target since.
fn repeat_after_the_end(stores: &Stores) {
    let (source, target) = (&stores.source.endpoint, &stores.target.endpoint);
    let newer = json!({"p": {"S": "old-7"}, "size": {"N": "2"}});
    target.ok("PutItem", &json!({"TableName": "things", "Item": newer}));
    let (code, said) = stores.run(&["--hand-over"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(items_of(target, "things")["old-7"], newer);
    let refused = source.send("PutItem", &json!({"TableName": "things", "Item": newer}));
    assert!(was_handed_over(&refused), "{}", refused.body);
}

/// Goal: a copy that was interrupted is repeated, also after the handover, which is as if it had been killed
/// just then.
#[test]
fn a_copy_is_completed_after_the_handover() {
    let mut stores = Stores::start();
    let source = stores.source.endpoint.clone();
    source.create_table("things");
    let mut copy = stores.begin("first.log");
    wait_for("the copy to be in step", LIMIT, || copy.log().contains("in step").then_some(()));
    assert!(!copy.interrupt(), "Ctrl-C is no success");
    assert!(copy.log().contains("run the same command again"), "{}", copy.log());
    source.ok("PutItem", &json!({"TableName": "things", "Item": {"p": {"S": "late"}}}));
    source.create_table("later");
    source.ok("PutItem", &json!({"TableName": "later", "Item": {"p": {"S": "1"}}}));
    let to = json!({"to": format!("http://{}", stores.target.endpoint.address())}).to_string();
    let answer = source.request("POST", "/_weir/handover", "", to.as_bytes()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    // The handover outlasts the process.
    stores.source.process.kill();
    stores.source = LocalStore::start(&stores.folder.path().join("source"));
    let item = json!({"TableName": "things", "Item": {"p": {"S": "refused"}}});
    assert!(was_handed_over(&stores.source.endpoint.send("PutItem", &item)));
    // A table that the command did not create is not taken for a complete copy.
    let target = &stores.target.endpoint;
    target.create_table("later");
    let (code, said) = stores.run(&["--hand-over"]);
    assert!(code == 4 && said.contains("did not create"), "{code}: {said}");
    target.ok("DeleteTable", &json!({"TableName": "later"}));
    let (code, said) = stores.run(&["--hand-over"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(items_of(target, "things").into_keys().collect::<Vec<_>>(), ["late"]);
    assert_eq!(target.scan("later").len(), 1);
}

#[test]
fn a_target_with_other_tables_of_the_same_names_is_refused() {
    let stores = Stores::start();
    let (source, target) = (&stores.source.endpoint, &stores.target.endpoint);
    for name in ["first", "things"] {
        source.create_table(name);
    }
    source.ok("PutItem", &json!({"TableName": "things", "Item": {"p": {"S": "1"}}}));
    target.create_table("things");
    let (code, said) = stores.run(&["--hand-over"]);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("`things`") && said.contains("did not create"), "{said}");
    assert_eq!(target.ok("ListTables", &json!({}))["TableNames"], json!(["things"]));
    assert!(target.scan("things").is_empty());

    // A copy that was begun no longer fits, because the source's table was changed.
    target.ok("DeleteTable", &json!({"TableName": "things"}));
    let mut copy = stores.begin("begun.log");
    wait_for("the copy to be in step", LIMIT, || copy.log().contains("in step").then_some(()));
    copy.kill();
    let index = json!({
        "TableName": "things",
        "AttributeDefinitions": [{"AttributeName": "g", "AttributeType": "S"}],
        "GlobalSecondaryIndexUpdates": [{"Create": {
            "IndexName": "by_g", "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
            "Projection": {"ProjectionType": "ALL"},
        }}],
    });
    source.ok("UpdateTable", &index);
    let (code, said) = stores.run(&["--hand-over"]);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("table `things` differs, only one endpoint has"), "{said}");
    // The source still accepts writes.
    source.ok("PutItem", &json!({"TableName": "things", "Item": {"p": {"S": "2"}}}));
}

/// Goal: what clients write to the target too early is found. Method: an item of the target is changed after
/// the copy is in step; the comparison copies it again, and no item of the source is lost.
#[test]
fn a_changed_item_of_the_target_is_copied_again() {
    let stores = Stores::start();
    let (source, target) = (&stores.source.endpoint, &stores.target.endpoint);
    source.create_table("things");
    for key in ["1", "2"] {
        source.ok("PutItem", &json!({"TableName": "things", "Item": {"p": {"S": key}}}));
    }
    let mut copy = stores.begin("followed.log");
    wait_for("the copy to be in step", LIMIT, || copy.log().contains("in step").then_some(()));
    target.ok("DeleteItem", &json!({"TableName": "things", "Key": {"p": {"S": "1"}}}));
    target.ok("PutItem", &json!({"TableName": "things", "Item": {"p": {"S": "3"}}}));
    let to = json!({"to": format!("http://{}", target.address())}).to_string();
    assert_eq!(source.request("POST", "/_weir/handover", "", to.as_bytes()).unwrap().status, 200);
    // The command notices the handover.
    wait_for("the command to end", LIMIT, || copy.has_ended().then_some(()));
    assert!(copy.log().contains("differs in 1 item; copying again"), "{}", copy.log());
    assert!(copy.log().contains("the copy is complete"), "{}", copy.log());
    assert_eq!(items_of(target, "things").into_keys().collect::<Vec<_>>(), ["1", "2"]);
}
