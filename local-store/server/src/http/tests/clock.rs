//! Tests of the clock over HTTP: a change of the clock survives a restart.

use std::path::Path;

use super::*;

/// Copies the files of a running store to a new folder, as if its process had been killed.
fn copied(from: &Path) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.file_name().unwrap());
            if path.is_dir() {
                std::fs::create_dir(&target).unwrap();
                copy(&path, &target);
            } else {
                std::fs::copy(&path, &target).unwrap();
            }
        }
    }
    let to = tempfile::tempdir().unwrap();
    copy(from, to.path());
    to
}

/// Goal: a restart does not set the store's clock back. Method: the test advances the clock without a later
/// write, copies the files when the response arrives, and opens a new store from the copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_advance_is_durable_without_later_writes() {
    let server = Server::start().await;
    for (change, advance) in [
        (r#"{"advance_ms":3600000}"#, 3_600_000),
        (r#"{"freeze":true}"#, 0),
        (r#"{"advance_ms":7200000}"#, 7_200_000),
    ] {
        // The clock is running, so the time in the response is later than the time that was set.
        let told = server.store.now().0 + advance;
        let answer = server.send("POST /_weir/clock HTTP/1.1", change).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let left = copied(server._directory.path());
        let config = Config {
            directory: left.path().to_path_buf(),
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            replicas: 1,
            arcs: 1,
        };
        let store = Store::open(config, Box::new(|reason| panic!("{reason}"))).await.unwrap();
        assert!(store.now().0 >= told, "{change}: {} is before {told}", store.now().0);
        assert!(store.now().0 < told + 600_000, "{change}: {} for {told}", store.now().0);
    }
}
