//! `local-store status`: shows the state of a running store's nodes as a table or as JSON.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::columns::align;
use super::ring;
use server::fatal::{Fatal, fatal};

/// The time-out of a request. A store responds in a fraction of this time even if its peers are
/// unreachable.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The time in milliseconds after which a leader counts as isolated if no majority responds. A leader
/// sends at least two heartbeats in this time.
const SILENCE_MS: u64 = 5_000;

/// The flags of the command.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  local-store status\n  local-store status --endpoint http://127.0.0.1:8002 --output json\n  local-store status --hot"
)]
pub(super) struct Flags {
    /// URL of any node of the store
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:8000",
        env = "AWS_ENDPOINT_URL_DYNAMODB"
    )]
    endpoint: Uri,
    /// Output format
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Also show the partitions of every table and the most requested keys, as counted by the process
    /// at the endpoint
    #[arg(long)]
    hot: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// Requests the state of the store and prints it.
pub(super) async fn run(flags: Flags) -> Result<(), Fatal> {
    let client = Client::new(&flags.endpoint)?;
    let mut status = client.send(Method::GET, "/_weir/status", None).await?;
    if flags.hot {
        let tables = client.tables().await?;
        let mut partitions = Vec::new();
        for table in tables {
            partitions
                .push(client.send(Method::GET, &format!("/_weir/partitions/{table}"), None).await?);
        }
        if let Some(members) = status.as_object_mut() {
            members.insert("tables".to_owned(), partitions.into());
        }
    }
    let text = match flags.output {
        Output::Json => format!("{status:#}\n"),
        Output::Table => render(&status),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(Fatal::new)
}

/// The flags of the command `leave`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  local-store leave 2 --endpoint http://127.0.0.1:8001")]
pub(super) struct LeaveFlags {
    /// Number of the node
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    node: u8,
    /// URL of any node of the store
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:8000",
        env = "AWS_ENDPOINT_URL_DYNAMODB"
    )]
    endpoint: Uri,
}

/// Lets a node leave the ring, and prints the ring.
pub(super) async fn leave(flags: LeaveFlags) -> Result<(), Fatal> {
    let client = Client::new(&flags.endpoint)?;
    let body = json!({ "node": flags.node }).to_string();
    let ring = client.send(Method::POST, "/_weir/ring/leave", Some(("", body))).await?;
    let text = format!(
        "{}node {} leaves: when `local-store status` no longer shows it, end its process and remove its directory\n",
        ring::render(&ring),
        flags.node
    );
    std::io::stdout().write_all(text.as_bytes()).map_err(Fatal::new)
}

/// A client of one endpoint.
struct Client {
    authority: String,
}

impl Client {
    fn new(endpoint: &Uri) -> Result<Self, Fatal> {
        let wrong = || {
            fatal!(
                "`{endpoint}` is not the endpoint of a store: write a URL such as http://127.0.0.1:8000"
            )
        };
        if endpoint.scheme_str() != Some("http") {
            return Err(wrong());
        }
        let host = endpoint.host().ok_or_else(wrong)?;
        Ok(Self { authority: format!("{host}:{}", endpoint.port_u16().unwrap_or(80)) })
    }

    /// Returns the names of all tables.
    async fn tables(&self) -> Result<Vec<String>, Fatal> {
        let mut names = Vec::new();
        let mut request = json!({});
        loop {
            let target = Some(("DynamoDB_20120810.ListTables", request.to_string()));
            let page = self.send(Method::POST, "/", target).await?;
            let found = page.get("TableNames").and_then(Value::as_array);
            names.extend(found.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
            match page.get("LastEvaluatedTableName") {
                Some(last) => request = json!({"ExclusiveStartTableName": last}),
                None => return Ok(names),
            }
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        target: Option<(&str, String)>,
    ) -> Result<Value, Fatal> {
        let asked = tokio::time::timeout(TIMEOUT, self.exchange(method, path, target));
        let late = |_| fatal!("{} did not respond within {TIMEOUT:?}", self.authority);
        let (status, body) = asked.await.map_err(late)??;
        let answer: Value = serde_json::from_slice(&body).map_err(|_| {
            fatal!(
                "the response of {} is not from a local-store of this version; check the endpoint",
                self.authority
            )
        })?;
        if status == 200 {
            return Ok(answer);
        }
        let name = answer.get("__type").and_then(Value::as_str).unwrap_or_default();
        if name.ends_with("MissingAuthenticationTokenException") {
            return Err(fatal!(
                "the store accepts only signed requests, which this command does not send: \
                use `curl --aws-sigv4 aws:amz:us-east-1:dynamodb --user KEY:SECRET \
                URL/_weir/status`"
            ));
        }
        match answer.get("what").and_then(Value::as_str) {
            Some(what) => Err(fatal!("{what}")),
            None => Err(fatal!("{} responded with status {status}: {answer}", self.authority)),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        target: Option<(&str, String)>,
    ) -> Result<(u16, Vec<u8>), Fatal> {
        let at = |error: &dyn std::fmt::Display| {
            fatal!(
                "cannot reach {}: {error}; check that the store is running there",
                self.authority
            )
        };
        let stream = TcpStream::connect(&self.authority).await.map_err(|error| at(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| at(&error))?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.authority);
        let mut body = String::new();
        if let Some((target, text)) = target {
            request = request
                .header("x-amz-target", target)
                .header(CONTENT_TYPE, "application/x-amz-json-1.0");
            body = text;
        }
        let request = request.body(Full::new(bytes::Bytes::from(body)));
        let request = request.map_err(|error| at(&error))?;
        let response = sender.send_request(request).await.map_err(|error| at(&error))?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|error| at(&error))?;
        connection.abort();
        Ok((status, body.to_bytes().to_vec()))
    }
}

/// Formats the status as a table.
fn render(status: &Value) -> String {
    let mut rows = vec![
        ["NODE", "ARC", "ROLE", "TERM", "APPLIED", "LAG", "LOG", "VERIFIED", "NOTE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let list = |name: &str| status.get(name).and_then(Value::as_array).into_iter().flatten();
    for replica in list("replicas") {
        let text = |name: &str| match replica.get(name) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        let log = replica.get("log_bytes").and_then(Value::as_u64).unwrap_or_default();
        let note = notes(replica).join("; ");
        let log = format!("{} MB", log / 1_000_000);
        rows.push(vec![
            text("node"),
            text("arc"),
            text("role"),
            text("term"),
            text("applied"),
            text("lag"),
            log,
            verified(replica),
            note,
        ]);
    }
    for node in list("nodes") {
        let Some(reason) = node.get("unreachable").and_then(Value::as_str) else { continue };
        let mut row = vec!["-".to_owned(); 9];
        if let [slot, _, role, .., note] = &mut row[..] {
            *slot = node.get("node").map(ToString::to_string).unwrap_or_default();
            "unreachable".clone_into(role);
            reason.clone_into(note);
        }
        rows.push(row);
    }
    let mut text = align(&rows);
    if let Some(ring) = status.get("ring").filter(|ring| !ring.is_null()) {
        text.push('\n');
        text.push_str(&ring::render(ring));
    }
    for node in list("nodes") {
        for name in node.get("set_aside").and_then(Value::as_array).into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            let _ = writeln!(
                text,
                "damaged directory, set aside: {name}; its file `reason` describes the damage"
            );
        }
    }
    for table in list("tables") {
        render_table(&mut text, table);
    }
    text
}

/// Returns notes about a replica for the operator: its node was rebuilt, is damaged, or is isolated.
#[must_use]
pub fn notes(replica: &Value) -> Vec<String> {
    let incarnation = replica.get("incarnation").and_then(Value::as_u64).unwrap_or_default();
    let silent = replica.get("silent_ms").and_then(Value::as_u64).unwrap_or_default();
    let mut notes = match incarnation {
        0 => Vec::new(),
        1 => vec!["was rebuilt once".to_owned()],
        times => vec![format!("was rebuilt {times} times")],
    };
    if replica.get("damaged").and_then(Value::as_bool) == Some(true) {
        notes.push("disk damaged: the node is rebuilt once its peers allow it".to_owned());
    }
    if silent >= SILENCE_MS {
        notes.push(format!(
            "no majority has responded for {} s; the replica accepts no writes and no strongly consistent reads",
            silent / 1_000
        ));
    }
    notes
}

/// Returns the percentage of a replica's files whose checksums were verified in the current or latest
/// pass.
#[must_use]
pub fn verified(replica: &Value) -> String {
    let number = |name: &str| replica.get("scrub").and_then(|scrub| scrub.get(name)?.as_u64());
    match (number("begun_ms"), number("passes")) {
        (Some(_), _) => {
            let (done, all) = (number("verified_bytes").unwrap_or(0), number("all_bytes"));
            // The total does not include data that was written during the pass, so the quotient can
            // exceed 100 %.
            let percent = done.saturating_mul(100) / all.unwrap_or(1).max(1);
            format!("{} %", percent.min(99))
        }
        (None, Some(passes)) if passes > 0 => "100 %".to_owned(),
        _ => "-".to_owned(),
    }
}

/// Appends the partitions and hot keys of one table.
fn render_table(text: &mut String, table: &Value) {
    let name = table.get("table").and_then(Value::as_str).unwrap_or_default();
    let _ = writeln!(text, "\ntable {name}");
    let show = |value: &Value, name: &str| match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "-".to_owned(),
    };
    let mut rows = vec![
        ["PARTITION", "ITEMS", "BYTES", "READ UNITS/S", "WRITE UNITS/S"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let columns = ["number", "items", "bytes", "read_units_per_second", "write_units_per_second"];
    for partition in table.get("partitions").and_then(Value::as_array).into_iter().flatten() {
        rows.push(columns.iter().map(|column| show(partition, column)).collect());
    }
    text.push_str(&align(&rows));
    for kind in ["reads", "writes"] {
        let keys = table.get("hot_keys").and_then(|keys| keys.get(kind)?.as_array());
        for hot in keys.into_iter().flatten() {
            let (key, rate) = (show(hot, "key"), show(hot, "units_per_second"));
            let _ = writeln!(text, "hot key, {kind}: {key}  {rate} units/s");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_isolated_leader_is_marked() {
        for (silent_ms, note) in [
            (json!(null), ""),
            (json!(4_999), ""),
            (json!(61_500), "no majority has responded for 61 s"),
        ] {
            let replica =
                json!({"node": 1, "incarnation": 1, "role": "leader", "silent_ms": silent_ms});
            let text = render(&json!({"replicas": [replica]}));
            assert!(text.contains("was rebuilt once") && text.contains(note), "{text}");
            assert_eq!(text.contains("no majority"), !note.is_empty(), "{text}");
        }
    }

    #[test]
    fn a_status_is_shown_with_its_problems() {
        let replica = |node: u64, role: &str, incarnation: u64| {
            json!({"node": node, "incarnation": incarnation, "arc": 0, "role": role, "term": 3,
                "applied": 120, "lag": 0, "log_bytes": 48_000_000, "damaged": node == 2,
                "scrub": {"passes": 3 - node, "begun_ms": (node == 2).then_some(7),
                    "verified_bytes": 250, "all_bytes": 1000}})
        };
        let status = json!({
            "replicas": [replica(1, "leader", 0), replica(2, "follower", 1)],
            "nodes": [
                {"node": 1, "set_aside": [], "unreachable": null},
                {"node": 2, "set_aside": ["node-2.set-aside-1"], "unreachable": null},
                {"node": 3, "set_aside": [], "unreachable": "connection refused"},
            ],
        });
        let expected = "\
NODE  ARC  ROLE         TERM  APPLIED  LAG  LOG    VERIFIED  NOTE
1     0    leader       3     120      0    48 MB  100 %
2     0    follower     3     120      0    48 MB  25 %      was rebuilt once; disk damaged: the node is rebuilt once its peers allow it
3     -    unreachable  -     -        -    -      -         connection refused
damaged directory, set aside: node-2.set-aside-1; its file `reason` describes the damage
";
        assert_eq!(render(&status), expected);
    }
}
