//! Tests of the gate: which requests its guard accepts, and which connection is closed for another.
//!
//! Goal: the guard refuses a request that a web page can send, directly or by DNS rebinding, and accepts
//! requests of programs. Method: a table of requests with their verdicts in `testdata/gate`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use tokio::time::timeout;

use super::guard::Admitted;
use super::progress::Rank;
use super::{AllowList, Connections, Guard};

const CASES: &str = include_str!("../../testdata/gate/requests.txt");

/// Returns the verdict on a request, in the format of the test cases.
fn verdict(guard: &Guard, own: IpAddr, lines: &[&str]) -> String {
    let (method, target) = lines[0].split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(target);
    for line in &lines[1..] {
        let (name, value) = line.split_once(':').unwrap();
        request = request.header(name, value.trim());
    }
    let (head, ()) = request.body(()).unwrap().into_parts();
    match guard.check(&head, Some(own)) {
        Ok(Admitted::Program) => "program".to_owned(),
        Ok(Admitted::Page(origin)) => format!("page {}", origin.to_str().unwrap()),
        Ok(Admitted::Preflight(origin)) => format!("preflight {}", origin.to_str().unwrap()),
        Err(refusal) => {
            let text = format!("{refusal:?}");
            text.split([' ', '(']).next().unwrap().to_owned()
        }
    }
}

#[test]
fn requests_pass_or_are_refused_as_recorded() {
    let allowed = |hosts: &[&str], origins: &[&str]| {
        let owned =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Guard::new(AllowList::new(&owned(hosts), &owned(origins)).unwrap())
    };
    let mut listener = (allowed(&[], &[]), "127.0.0.1".parse().unwrap());
    let mut count = 0;
    for case in CASES.split("\n\n") {
        let lines: Vec<_> = case.lines().filter(|line| !line.starts_with('#')).collect();
        let Some(first) = lines.first() else { continue };
        if let Some(own) = first.strip_prefix("listener ") {
            let named = |prefix| lines[1..].iter().filter_map(move |l| l.strip_prefix(prefix));
            let hosts: Vec<_> = named("allow-host ").collect();
            let origins: Vec<_> = named("allow-origin ").collect();
            listener = (allowed(&hosts, &origins), own.parse().unwrap());
            continue;
        }
        let (expected, request) = lines.split_last().unwrap();
        let found = verdict(&listener.0, listener.1, request);
        assert_eq!(format!("=> {found}"), *expected, "{case}");
        count += 1;
    }
    assert!(count > 60, "only {count} cases were found");
}

/// Goal: connections are closed in the order of their ranks. Method: six connections are in
/// different states, and the test repeatedly asks the connection with the lowest rank to close.
#[tokio::test(start_paused = true)]
async fn the_least_needed_connection_leaves_first() {
    let connections = Connections::new(6);
    let mut places = Vec::new();
    for _ in 0..6 {
        places.push(connections.place().await.unwrap());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The first connection gets a response. The second sends a request. The third is an idle known client.
    // The others are unknown clients.
    places[0].progress().set_under_way(true);
    places[0].progress().set_arrived(true);
    places[1].progress().set_under_way(true);
    places[2].progress().set_known();
    // The client has just sent something.
    places[3].progress().note_read();
    assert_eq!(places[1].progress().rank().unwrap().0, Rank::SendingUnknown);
    let asked = async |number: usize| {
        connections.make_room();
        timeout(Duration::from_millis(1), places[number].progress().evicted()).await.is_ok()
    };
    for number in [4, 5, 3, 2, 1] {
        assert!(asked(number).await, "connection {number}");
    }
    assert!(!asked(0).await, "a connection with a response in progress keeps its place");
}

/// Goal: no client waits because of an idle client, and no connection is closed while a response is in
/// progress.
#[tokio::test(start_paused = true)]
async fn clients_wait_only_while_all_places_are_busy() {
    let connections = Connections::new(2);
    let busy = connections.place().await.unwrap();
    busy.progress().set_under_way(true);
    busy.progress().set_arrived(true);
    let idle = connections.place().await.unwrap();
    let waiting = tokio::spawn({
        let connections = Arc::clone(&connections);
        async move { connections.place().await.unwrap() }
    });
    idle.progress().evicted().await;
    drop(idle);
    let second = timeout(Duration::from_millis(1), waiting).await.unwrap().unwrap();
    second.progress().set_under_way(true);
    second.progress().set_arrived(true);
    assert!(timeout(Duration::from_secs(5), connections.place()).await.is_err());
    drop(busy);
    assert!(timeout(Duration::from_millis(1), connections.place()).await.is_ok());
}
