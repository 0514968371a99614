//! An example of a test with a store in the test's process: TTL that depends on the store's clock.

use aws_sdk_dynamodb::types::AttributeValue;

use crate::store::TestStore;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_expires_after_a_day() {
    let store = TestStore::open().await;
    store.table("sessions").await;
    store.expire_by("sessions", "until").await;
    let until = store.store.now().seconds() + 24 * 3600;
    let put = store.client.put_item().table_name("sessions");
    let put = put.item("p", AttributeValue::S("ada".to_owned()));
    put.item("until", AttributeValue::N(until.to_string())).send().await.unwrap();

    for (hours, expired) in [(23, 0), (2, 1)] {
        store.store.clock().advance(hours * 3_600_000);
        assert_eq!(store.store.sweep_time_to_live().await.unwrap().expired, expired);
    }
    let left = store.client.scan().table_name("sessions").send().await.unwrap();
    assert_eq!(left.count(), 0);
}
