//! One measurement: connections send one operation in a closed loop. Each connection sends a
//! request as soon as its previous request was answered.
//!
//! One thread generates the load, so that the cost is only one event loop. This module neither
//! creates tables nor prints.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use http::StatusCode;

use crate::client::{Connection, Endpoint};
use crate::error::Result;
use crate::process::{self, Usage};
use crate::request::Request;
use crate::workload::{self, Draw, Operation, Tables};

/// The number of significant decimal digits of latencies.
const DIGITS: u8 = 3;
/// The time-out for answers that are outstanding at the end.
const GRACE: Duration = Duration::from_secs(20);
/// The number of failed attempts to connect after which a connection stops, because the server is
/// probably down.
const RECONNECTS_MAX: u32 = 50;
/// The pause before a reconnect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);
/// The maximum length of an error message in characters.
const ERROR_CHARACTERS_MAX: usize = 300;

/// The parameters of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) endpoint: Endpoint,
    pub(crate) tables: Tables,
    pub(crate) operation: Operation,
    pub(crate) connections: u32,
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
    /// The ids of the server's processes whose CPU time is measured; empty if it is not measured.
    pub(crate) server_pids: Vec<u32>,
}

/// The results between the warm-up and the end.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Latencies of successful requests, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// The number of requests that failed or whose outcome is unknown.
    pub(crate) errors: u64,
    /// The number of acknowledged requests of the entire run, including the warm-up.
    pub(crate) acknowledged: u64,
    /// The number of requests with an unknown outcome in the entire run, including the warm-up.
    pub(crate) unknown: u64,
    /// The message of the first error.
    pub(crate) first_error: Option<String>,
    /// CPU time of the server's processes during the measurement, and their memory at the end.
    pub(crate) server: Option<Usage>,
}

impl Outcome {
    /// Returns an outcome without any request.
    ///
    /// # Errors
    /// Never: the histogram supports this precision.
    pub(crate) fn new() -> Result<Self> {
        let latency = Histogram::new_with_max(u64::from(u32::MAX) * 1000, DIGITS)?;
        Ok(Self {
            latency,
            errors: 0,
            acknowledged: 0,
            unknown: 0,
            first_error: None,
            server: None,
        })
    }

    fn fail(&mut self, measured: bool, text: impl FnOnce() -> String) {
        self.errors += u64::from(measured);
        if self.first_error.is_none() {
            self.first_error = Some(text().chars().take(ERROR_CHARACTERS_MAX).collect());
        }
    }
}

/// Runs the measurement. The run lasts for the warm-up, the duration, and at most [`GRACE`].
///
/// # Errors
/// When the load cannot be generated or the server's processes cannot be read.
pub(crate) async fn measure(plan: Plan) -> Result<Outcome> {
    let (warm_up, duration) = (plan.warm_up, plan.duration);
    let pids = plan.server_pids.clone();
    let began = Instant::now();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    thread::Builder::new()
        .name("generator".to_owned())
        .spawn(move || {
            // The receiver may have been dropped, so a failure to send the outcome is ignored.
            let _ = sender.send(generate(&plan, began));
        })
        .map_err(|error| format!("cannot start the load generator: {error}"))?;
    tokio::time::sleep_until((began + warm_up).into()).await;
    let before = read(&pids)?;
    tokio::time::sleep_until((began + warm_up + duration).into()).await;
    let after = read(&pids)?;
    let mut outcome = receiver.await.map_err(|_| "the load generator ended early")??;
    outcome.server = before.zip(after).map(|(before, after)| Usage {
        cpu_micros: after.cpu_micros.saturating_sub(before.cpu_micros),
        resident_bytes: after.resident_bytes,
    });
    Ok(outcome)
}

fn read(pids: &[u32]) -> Result<Option<Usage>> {
    if pids.is_empty() { Ok(None) } else { process::read_usage(pids).map(Some) }
}

/// Runs all connections on this thread.
fn generate(plan: &Plan, began: Instant) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the load generator: {error}"))?;
    let outcome = Rc::new(RefCell::new(Outcome::new()?));
    // The request is built before the first one is sent, so that building cannot fail later.
    let request = plan.tables.request(&plan.endpoint.authority, plan.operation)?;
    let end = began + plan.warm_up + plan.duration + GRACE;
    let local = tokio::task::LocalSet::new();
    for number in 0..plan.connections {
        let (plan, outcome) = (plan.clone(), Rc::clone(&outcome));
        let request = request.clone();
        local.spawn_local(async move {
            let mut driver = Driver::new(&plan, began, number, request, &outcome);
            if tokio::time::timeout_at(end.into(), driver.drive()).await.is_err() {
                let mut outcome = outcome.borrow_mut();
                outcome.unknown += 1;
                outcome.fail(true, || format!("no answer within {} s", GRACE.as_secs()));
            }
        });
    }
    runtime.block_on(local);
    let outcome = Rc::into_inner(outcome).ok_or("a connection did not end")?;
    Ok(outcome.into_inner())
}

/// One connection and its load.
struct Driver<'a> {
    plan: &'a Plan,
    request: Request,
    outcome: &'a RefCell<Outcome>,
    draw: Draw,
    measure_from: Instant,
    until: Instant,
}

impl<'a> Driver<'a> {
    fn new(
        plan: &'a Plan,
        began: Instant,
        number: u32,
        request: Request,
        outcome: &'a RefCell<Outcome>,
    ) -> Self {
        let measure_from = began + plan.warm_up;
        let draw = Draw::new(u64::from(number) + 1);
        Self { plan, request, outcome, draw, measure_from, until: measure_from + plan.duration }
    }

    fn is_measured(&self, now: Instant) -> bool {
        (self.measure_from..self.until).contains(&now)
    }

    async fn drive(&mut self) {
        for _ in 0..RECONNECTS_MAX {
            let closed = match Connection::open(&self.plan.endpoint).await {
                Ok(connection) => self.send_until_the_end(connection).await,
                Err(error) => {
                    let measured = self.is_measured(Instant::now());
                    let mut outcome = self.outcome.borrow_mut();
                    outcome.fail(measured, || format!("cannot connect: {error}"));
                    Closed::Broken
                }
            };
            if matches!(closed, Closed::Done) || Instant::now() >= self.until {
                return;
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    /// Sends requests one after the other.
    async fn send_until_the_end(&mut self, mut connection: Connection) -> Closed {
        let operation = self.plan.operation;
        loop {
            self.draw.set_next(&mut self.request, operation, &self.plan.tables);
            let sent = Instant::now();
            if sent >= self.until {
                return Closed::Done;
            }
            let answered = connection.exchange(self.request.to_http()).await;
            let now = Instant::now();
            let measured = self.is_measured(now);
            let mut outcome = self.outcome.borrow_mut();
            match answered {
                Ok(answer) if answer.status == StatusCode::OK => {
                    outcome.acknowledged += 1;
                    if !workload::is_complete(operation, &answer.body) {
                        outcome.fail(measured, || "an answer is incomplete".to_owned());
                    } else if measured {
                        let nanos = now.duration_since(sent).as_nanos();
                        outcome.latency.saturating_record(u64::try_from(nanos).unwrap_or(u64::MAX));
                    }
                }
                Ok(answer) => {
                    // A server error may follow a completed write; a client error does not.
                    outcome.unknown += u64::from(answer.status.is_server_error());
                    let body = String::from_utf8_lossy(&answer.body);
                    outcome.fail(measured, || format!("HTTP {}: {body}", answer.status.as_u16()));
                }
                Err(error) => {
                    outcome.unknown += 1;
                    outcome.fail(measured, || format!("a connection broke: {error}"));
                    return Closed::Broken;
                }
            }
            if connection.is_closed() {
                return Closed::Broken;
            }
        }
    }
}

enum Closed {
    /// The time of the measurement is over.
    Done,
    /// The server closed the connection, or it broke.
    Broken,
}
