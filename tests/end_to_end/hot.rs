//! Test of `local-store status --hot`, which shows the partitions and keys with the most requests.

use serde_json::{Value, json};

use crate::process::{LocalStore, binary};

fn status(store: &LocalStore, flags: &[&str]) -> String {
    let endpoint = format!("http://{}", store.endpoint.address());
    let mut command = binary("local-store");
    command.args(["status", "--endpoint", &endpoint, "--hot"]).args(flags);
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    String::from_utf8(ended.stdout).unwrap()
}

/// Goal: the most frequently written key is shown as text and as JSON, for users who try out write
/// sharding.
#[test]
fn the_hottest_key_and_its_partition_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    store.endpoint.create_table("votes");
    for number in 0..120 {
        let name = if number % 4 == 0 { format!("other-{number}") } else { "hot".to_owned() };
        let item = json!({"TableName": "votes", "Item": {"p": {"S": name}}});
        store.endpoint.ok("PutItem", &item);
    }
    let told: Value = serde_json::from_str(&status(&store, &["--output", "json"])).unwrap();
    assert!(!told["replicas"].as_array().unwrap().is_empty(), "{told}");
    let table = &told["tables"][0];
    assert_eq!(table["table"], "votes");
    let partitions = table["partitions"].as_array().unwrap();
    let items = partitions.iter().map(|partition| partition["items"].as_u64().unwrap());
    assert_eq!(items.sum::<u64>(), 31);
    let rate = |of: &Value| of["write_units_per_second"].as_f64().unwrap();
    assert!(partitions.iter().map(rate).sum::<f64>() > 0.0, "{told}");
    let keys = table["hot_keys"]["writes"].as_array().unwrap();
    assert!(keys[0]["key"].to_string().contains("hot"), "{told}");

    let shown = status(&store, &[]);
    for part in ["NODE", "table votes", "PARTITION  ITEMS", "hot key, writes: "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let first = shown.lines().find(|line| line.starts_with("hot key, writes: ")).unwrap();
    assert!(first.contains("hot") && first.ends_with("units/s"), "{shown}");
}
