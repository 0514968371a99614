//! The clients, which send requests to any endpoint and record the answers. The checkers check the
//! answers.

pub mod bank;
pub mod counters;
pub mod expiring;
pub mod readers;
pub mod registers;
pub mod transactions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::{Item, Number};
use storage::disk::SplitMix64;

use crate::history::{History, WriteOutcome};
use crate::request::{
    Answer, Change, Endpoint, Expression, Failure, KEY, Request, WRITE_ID, Write,
};

/// The signals that pause or end all clients.
#[derive(Debug, Default)]
pub struct Signals {
    /// The signal to pause. While this flag is set, clients send no requests.
    pub pause: AtomicBool,
    /// The signal to end. When this flag is set, clients end.
    pub end: AtomicBool,
}

/// One client, which sends one request at a time.
pub struct Client<E> {
    /// The endpoint to which the client sends its requests.
    pub endpoint: E,
    /// The recorder of the client's requests and answers.
    pub history: Arc<History>,
    /// The source of the client's random choices.
    pub random: SplitMix64,
    /// The signals that the client obeys.
    pub signals: Arc<Signals>,
    /// The maximum time between two requests in milliseconds.
    pub pause_ms: u64,
}

/// The result of a write: the answer, or the outcome that is known without an answer.
pub(crate) type Outcome = Result<Answer, WriteOutcome>;

impl<E: Endpoint> Client<E> {
    /// Pauses for a short time. Returns whether the client should continue.
    pub(crate) async fn pause(&mut self) -> bool {
        let millis = self.random.next_u64() % (self.pause_ms + 1);
        tokio::time::sleep(Duration::from_millis(millis)).await;
        while self.signals.pause.load(Ordering::SeqCst) && !self.signals.end.load(Ordering::SeqCst)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        !self.signals.end.load(Ordering::SeqCst)
    }

    /// Returns a number from 0 to `bound`, inclusive.
    pub(crate) fn choose(&mut self, bound: usize) -> usize {
        self.random.up_to(bound)
    }

    /// Sends a request, and counts the outcome.
    pub(crate) async fn send(&self, request: Request) -> Outcome {
        let asked = format!("{request:?}");
        let answer = self.endpoint.call(request).await;
        let mut records = self.history.records();
        match answer {
            Ok(answer) => {
                records.acknowledged += 1;
                Ok(answer)
            }
            Err(Failure::Refused(_)) => {
                records.refused += 1;
                Err(WriteOutcome::NotApplied)
            }
            Err(Failure::Unknown(_)) => {
                records.unknown += 1;
                Err(WriteOutcome::Unknown)
            }
            Err(Failure::Defect(what)) => {
                records.defects.push(format!("{what}, to {asked}"));
                Err(WriteOutcome::Unknown)
            }
        }
    }

    /// Records an answer that is invalid for the kind of request.
    pub(crate) fn record_defect(&self, asked: &str, answer: &Answer) {
        self.history.records().defects.push(format!("{asked} returned {answer:?}"));
    }

    /// Retries a transaction with a token until its outcome is known, at most for the lifetime of
    /// the token. Returns the outcome of its writes.
    pub(crate) async fn retry_transaction(
        &mut self,
        token: String,
        writes: Vec<Write>,
    ) -> WriteOutcome {
        let begun = self.endpoint.now_seconds();
        let mut uncertain = false;
        for _ in 0..ATTEMPTS_MAX {
            let request = Request::Transact(Some(token.clone()), writes.clone());
            match self.send(request).await {
                Ok(Answer::Transacted) => return WriteOutcome::Acknowledged,
                // An earlier attempt may still be in progress, and may succeed.
                Ok(Answer::Cancelled) if uncertain => return WriteOutcome::Unknown,
                Ok(Answer::Cancelled) => return WriteOutcome::NotApplied,
                Ok(other) => {
                    self.record_defect("a transaction", &other);
                    return WriteOutcome::Unknown;
                }
                Err(fate) => uncertain |= fate == WriteOutcome::Unknown,
            }
            // The time is read after the pause, because store time may have been advanced during
            // the pause.
            let goes_on = self.pause().await;
            let remembered = self.endpoint.now_seconds() < begun + TOKEN_SECONDS;
            if !goes_on || !remembered {
                break;
            }
        }
        if uncertain { WriteOutcome::Unknown } else { WriteOutcome::NotApplied }
    }
}

/// The maximum number of attempts of one transaction. A cluster recovers long before the last
/// attempt.
const ATTEMPTS_MAX: usize = 200;
/// The lifetime of a token in seconds: ten minutes, less one minute for clock skew.
const TOKEN_SECONDS: u64 = 540;

/// Creates a number.
pub(crate) fn number(value: u64) -> Number {
    Number::from(value)
}

/// Creates an item with its key and the number of the write that stores it.
pub(crate) fn item(key: &str, id: u64) -> Item {
    Item::new().with(KEY, key).with(WRITE_ID, number(id))
}

/// Creates a write without a condition.
pub(crate) fn write(key: &str, change: Change) -> Write {
    Write { key: key.to_owned(), change, condition: None }
}

/// Creates an update that also stores the number of the write: `SET w = :w` and `rest`.
pub(crate) fn update(
    key: &str,
    id: u64,
    rest: &Expression,
    condition: Option<Expression>,
) -> Write {
    let text = format!("SET {WRITE_ID} = :w{}", rest.text);
    let expression = Expression { text, values: rest.values.clone() }.with(":w", number(id));
    Write { key: key.to_owned(), change: Change::Update(expression), condition }
}
