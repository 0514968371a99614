//! Tests of editions that are not current or not complete, against a store in this process.

use std::io::Write;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use rules::versions::edition::EditionState;
use tempfile::NamedTempFile;
use tokio::net::TcpListener;

use super::*;
use client::attribute::to_sdk_item;
use client::failure::fatal;
use testing::store::TestStore;

/// The time at which a test begins. The tests add days to it for later times.
const NOW: u64 = 1_700_000_000;
const DAY: u64 = 86_400;

/// Returns a place with an empty table of editions, whose time is [`NOW`].
pub(super) async fn place(store: &TestStore) -> Place {
    store.table_of("editions", "edition", "item").await;
    at(store, NOW)
}

fn at(store: &TestStore, now: u64) -> Place {
    Place {
        client: store.client.clone(),
        table: "editions".to_owned(),
        set: "main".to_owned(),
        now,
    }
}

/// Returns a place whose endpoint is a listener, so that the test writes the answers. The SDK does
/// not retry, because its pauses would take time.
pub(super) async fn listening() -> (TcpListener, Place) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = endpoint::client(&format!("http://{}", listener.local_addr().unwrap()));
    let config = client.config().to_builder().retry_config(RetryConfig::disabled()).build();
    let place = Place {
        client: Client::from_conf(config),
        table: "editions".to_owned(),
        set: "main".to_owned(),
        now: NOW,
    };
    (listener, place)
}

/// Returns some items, one per line.
pub(super) fn items(count: usize) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    (0..count).for_each(|id| writeln!(file, r#"{{"id":{{"N":"{id}"}}}}"#).unwrap());
    file
}

/// Returns the arguments that prepare an edition from the items in a file.
pub(super) fn of_file(file: &NamedTempFile) -> PrepareArguments {
    PrepareArguments {
        from_table: None,
        from_file: Some(file.path().to_owned()),
        through: None,
        keys: vec!["id".to_owned()],
    }
}

async fn prepare_and_publish(place: &Place, items: &NamedTempFile) {
    let edition = prepare::run(place, &of_file(items)).await.unwrap();
    head_change::publish(place, edition.number).await.unwrap();
}

#[tokio::test]
async fn readers_have_a_day_from_when_an_edition_was_left() {
    let store = TestStore::open().await;
    let (place, items) = (place(&store).await, items(3));
    prepare_and_publish(&place, &items).await;
    prepare_and_publish(&place, &items).await;
    // Two months later, edition 3 replaces edition 2, and edition 4 replaces edition 3 immediately.
    let later = at(&store, NOW + 60 * DAY);
    prepare_and_publish(&later, &items).await;
    prepare_and_publish(&later, &items).await;
    let left = reading::known_edition(&later, 2).await.unwrap();
    assert_eq!((left.left_at, left.state), (Some(later.now), EditionState::Ready));
    // Edition 1 was replaced long ago.
    assert_eq!(prune::run(&later, 0, 1).await, Ok(vec![(1, 3)]));
    assert_eq!(prune::run(&at(&store, later.now + DAY), 0, 1).await, Ok(vec![]));
    assert_eq!(prune::run(&at(&store, later.now + DAY + 1), 0, 1).await, Ok(vec![(2, 3)]));
    // After a rollback to an edition, its age is measured from the time when it is replaced again.
    head_change::roll_back(&later, None, None).await.unwrap();
    let back = at(&store, later.now + 9 * DAY);
    head_change::roll_back(&back, None, Some(4)).await.unwrap();
    assert_eq!(reading::known_edition(&back, 3).await.unwrap().left_at, Some(back.now));
}

/// An edition can be published even after an operator deleted the record of the current edition.
#[tokio::test]
async fn a_missing_record_is_neither_needed_nor_recreated() {
    let store = TestStore::open().await;
    let (place, items) = (place(&store).await, items(1));
    prepare_and_publish(&place, &items).await;
    let second = prepare::run(&place, &of_file(&items)).await.unwrap();
    let key = |text: &str| aws_sdk_dynamodb::types::AttributeValue::S(text.to_owned());
    let request = place.client.delete_item().table_name("editions");
    let request = request.key("edition", key("main#")).key("item", key("v0000000001"));
    request.send().await.unwrap();
    head_change::publish(&place, second.number).await.unwrap();
    let numbers: Vec<u64> =
        reading::editions(&place).await.unwrap().iter().map(|edition| edition.number).collect();
    assert_eq!(numbers, [2]);
}

/// The preparation of edition 2 was killed before the first item, and the preparation of edition 3
/// before the last item. Edition 4 is being pruned.
#[tokio::test]
async fn an_unready_edition_does_not_appear_whole() {
    let store = TestStore::open().await;
    let (place, items) = (place(&store).await, items(3));
    prepare_and_publish(&place, &items).await;
    for state in ["preparing", "preparing", "pruned"] {
        let number = prepare::run(&place, &of_file(&items)).await.unwrap().number;
        set_state(&place, number, state).await;
    }
    prune::remove_items(&place, 2).await.unwrap();
    for number in [2, 3, 4] {
        let mut record = reading::known_edition(&place, number).await.unwrap();
        (record.items, record.digest) = (0, 0);
        let put = place.client.put_item().table_name("editions");
        put.set_item(Some(to_sdk_item(&record.to_item("main")))).send().await.unwrap();
        let checked = compare::run(&place, number, Output::Json).await;
        assert_eq!(checked, Ok(Exit::Differences), "{number}");
        let state = record.state.as_str();
        let not_whole = fatal!(
            "edition {number} is {state}, so it is not complete: name an edition that is ready (`weir editions ls`)"
        );
        let mut seen = 0;
        let dumped = reading::each(&place, number, |_, _| {
            seen += 1;
            Ok(())
        });
        assert_eq!((dumped.await, seen), (Err(not_whole.clone()), 0));
        // The result is the same whether or not the edition has the key.
        for key in [r#"{"id":1}"#, r#"{"id":9}"#] {
            assert_eq!(get(&place, key, Some(number)).await, Err(not_whole.clone()), "{key}");
        }
        assert!(reading::was_there(&place, number).await.is_err());
    }
    assert_eq!(get(&place, r#"{"id":1}"#, Some(1)).await, Ok(Exit::Done));
    assert_eq!(compare::run(&place, 1, Output::Json).await, Ok(Exit::Done));
    let nothing = Err(fatal!("set `main` has no edition 9"));
    assert_eq!(get(&place, r#"{"id":1}"#, Some(9)).await, nothing);
    let gone = reading::was_there(&place, 9).await.unwrap_err();
    assert_eq!(gone.to_string(), "edition 9 was pruned while it was read: run the command again");
}

async fn set_state(place: &Place, number: u64, state: &str) {
    let mut record = reading::known_edition(place, number).await.unwrap().to_item("main");
    record.insert("state".to_owned(), state.into());
    let put = place.client.put_item().table_name("editions");
    put.set_item(Some(to_sdk_item(&record))).send().await.unwrap();
}

/// DynamoDB accepts these items in a table, but they are too large for an edition.
#[tokio::test]
async fn an_item_too_large_for_an_edition_is_named_with_its_limit() {
    let store = TestStore::open().await;
    let place = place(&store).await;
    let deep = (0..30).fold(r#"{"S":"x"}"#.to_owned(), |inner, _| format!(r#"{{"L":[{inner}]}}"#));
    let long = format!(r#"{{"id":{{"S":"{}"}}}}"#, "k".repeat(1_010));
    for (item, key, limit) in [
        (
            format!(r#"{{"id":{{"N":"1"}},"d":{{"L":[{deep}]}}}}"#),
            r#"{"id":{"N":"1"}}"#,
            "than 32;",
        ),
        (long.clone(), &*long, "has at most 1024;"),
    ] {
        let mut file = items(2);
        writeln!(file, "{item}").unwrap();
        let said = prepare::run(&place, &of_file(&file)).await.unwrap_err().to_string();
        assert!(
            said.starts_with(&format!("the item {key} does not fit into an edition: ")),
            "{said}"
        );
        assert!(said.contains(limit) && said.contains("--through"), "{said}");
    }
    let said = get(&place, &long, Some(1)).await.unwrap_err().to_string();
    assert!(said.contains("does not fit into an edition"), "{said}");
}
