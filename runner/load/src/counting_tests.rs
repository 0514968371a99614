//! Tests of counting loads that are interrupted and run again: no line is lost or counted twice.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::{Args as _, FromArgMatches as _};
use futures::FutureExt as _;
use tempfile::TempDir;
use tokio::sync::Notify;

use super::{LoadArguments, LoadReport, load};
use client::endpoint;
use client::failure::{Failure, Result};
use mapping::mix;
use testing::proxy;
use testing::store::TestStore;

/// Number of lines of the file. It is more than all lanes have in flight.
const LINES: u64 = 1_500;

struct Count {
    store: TestStore,
    folder: TempDir,
}

impl Count {
    async fn begin() -> Self {
        let count = Self { store: TestStore::open().await, folder: tempfile::tempdir().unwrap() };
        count.store.table("slots").await;
        count.write(LINES);
        count
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes lines. Line `n` adds `n` to one of three counters, by one of 40 voters.
    fn write(&self, lines: u64) {
        let line = |n: u64| format!("c{},v{},{n}\n", n % 3, n % 40);
        let text: String = (1..=lines).map(line).collect();
        std::fs::write(self.path("votes.csv"), format!("c,v,points\n{text}")).unwrap();
    }

    fn arguments(&self, more: &[&str]) -> LoadArguments {
        let command = LoadArguments::augment_args(clap::Command::new("load"));
        let (file, aside, records) = (self.path("votes.csv"), self.path("a"), self.path("records"));
        let flags = ["load", &file, "--count-into", "{c}", "--voter", "v", "--amount", "points"];
        let places = ["--table", "slots", "--put-aside", &aside, "--records", &records];
        let all = flags.into_iter().chain(places).chain(more.iter().copied());
        LoadArguments::from_arg_matches(&command.try_get_matches_from(all).unwrap()).unwrap()
    }

    async fn run(&self, more: &[&str]) -> Result<LoadReport> {
        load(self.arguments(more), endpoint::client(&self.store.url), 0).await
    }

    /// Runs a load with 16 requests in flight, and drops it after this many additions have reached
    /// the store.
    async fn interrupted_after(&self, additions: u32) {
        let (left, stuck) = (Arc::new(AtomicU32::new(additions)), Arc::new(Notify::new()));
        let of_script = Arc::clone(&stuck);
        let script = move |operation: &str, _: &str| {
            let take = |left: u32| left.checked_sub(1);
            let order = Ordering::SeqCst;
            let is_stuck =
                operation == "UpdateItem" && left.fetch_update(order, order, take).is_err();
            let stuck = Arc::clone(&of_script);
            async move {
                if is_stuck {
                    stuck.notify_one();
                    std::future::pending::<()>().await;
                }
                None
            }
            .boxed()
        };
        let url = proxy::before(&self.store.url, script).await;
        tokio::select! {
            ended = load(self.arguments(&[]), endpoint::client(&url), 0) => {
                panic!("it should not have ended: {ended:?}")
            }
            () = stuck.notified() => {}
        }
    }

    async fn sum(&self) -> u64 {
        let slots = self.store.client.scan().table_name("slots").send().await.unwrap();
        let votes = slots.items().iter().map(|slot| slot["votes"].as_n().unwrap());
        votes.map(|votes| votes.parse::<u64>().unwrap()).sum()
    }
}

const SUM: u64 = LINES * (LINES + 1) / 2;

fn counted(loaded: u64, counted_before: u64) -> Result<LoadReport> {
    Ok(LoadReport { loaded, counted_before, ..LoadReport::default() })
}

#[tokio::test]
async fn a_load_that_is_interrupted_anywhere_counts_each_line_once() {
    for seed in 0..6_u64 {
        let count = Count::begin().await;
        for attempt in 0..=seed % 3 {
            let additions = u32::try_from(mix(seed * 10 + attempt) % LINES).unwrap();
            // A later run skips the counted lines and sends fewer lines, so it is interrupted
            // earlier.
            let additions = additions / (1 + u32::try_from(attempt).unwrap());
            let was = count.sum().await;
            if was < SUM / 2 {
                count.interrupted_after(additions / 4).await;
            }
        }
        let before = count.sum().await;
        let report = count.run(&[]).await.unwrap();
        assert_eq!(report.loaded + report.counted_before, LINES, "seed {seed}");
        assert_eq!(report.counted_before > 0, before > 0, "seed {seed}");
        assert_eq!(count.sum().await, SUM, "seed {seed}");
        assert_eq!(count.run(&[]).await, counted(0, LINES), "seed {seed}");
        assert_eq!(count.sum().await, SUM, "seed {seed}");
    }
}

#[tokio::test]
async fn two_processes_that_count_one_file_count_each_line_once() {
    let count = Count::begin().await;
    let (one, other) = tokio::join!(count.run(&[]), count.run(&[]));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one.loaded + other.loaded, LINES);
    assert_eq!(one.counted_before + other.counted_before, LINES);
    assert_eq!(count.sum().await, SUM);
}

#[tokio::test]
async fn a_run_that_would_count_lines_twice_is_refused_before_it_counts_any() {
    let count = Count::begin().await;
    count.interrupted_after(300).await;
    // Lanes of the dropped run may still complete their requests.
    let check = |ended: Result<LoadReport>, words: &str| {
        let Err(Failure::Refused(refused)) = ended else { panic!("{ended:?}") };
        assert!(refused.contains(words), "{refused}");
    };
    let refused = async |more: &[&str], words: &str| check(count.run(more).await, words);
    refused(&["--slots", "5"], "was counted with --slots `20`").await;
    let other = LoadArguments { voter: Some("points".to_owned()), ..count.arguments(&[]) };
    let other = load(other, endpoint::client(&count.store.url), 0).await;
    check(other, "was counted with --voter `v`");
    count.write(LINES + 1);
    refused(&[], "was changed after its load was interrupted").await;
    count.write(LINES);
    count.run(&[]).await.unwrap();
    assert_eq!(count.sum().await, SUM);
    // The store keeps the marks of counted lines. The file is therefore recognised without the
    // local record, and under another name.
    std::fs::remove_dir_all(count.path("records")).unwrap();
    let moved = Path::new(&count.path("moved.csv")).to_owned();
    std::fs::copy(count.path("votes.csv"), &moved).unwrap();
    let arguments = LoadArguments { file: moved, ..count.arguments(&[]) };
    let report = load(arguments, endpoint::client(&count.store.url), 0).await;
    assert_eq!(report, counted(0, LINES));
    assert_eq!(count.run(&["--load-name", "again"]).await, counted(LINES, 0));
    assert_eq!(count.sum().await, 2 * SUM);
    // After a complete load, the file with one more line counts as a different file.
    count.write(LINES + 1);
    assert_eq!(count.run(&[]).await, counted(LINES + 1, 0));
}
