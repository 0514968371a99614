//! The clients: what they ask, and how they record what they heard. They run against anything that
//! answers requests, and judge nothing.

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

use crate::history::{Fate, History};
use crate::request::{
    Answer, Change, Endpoint, Expression, Failure, KEY, Request, WRITE_ID, Write,
};

/// Tells all clients when to wait and when to end.
#[derive(Debug, Default)]
pub struct Signals {
    /// Clients send nothing while this is set.
    pub hold: AtomicBool,
    /// Clients end when this is set.
    pub end: AtomicBool,
}

/// One client: it asks one thing at a time.
pub struct Client<E> {
    /// Whom it asks.
    pub endpoint: E,
    /// Where it records.
    pub history: Arc<History>,
    /// What it chooses by.
    pub random: SplitMix64,
    /// When it waits and ends.
    pub signals: Arc<Signals>,
    /// The longest time between two requests, in milliseconds.
    pub pause_ms: u64,
}

/// What a write came to: the answer, or the fate of a write without one.
pub(crate) type Outcome = Result<Answer, Fate>;

impl<E: Endpoint> Client<E> {
    /// Waits a little. Gives whether to go on.
    pub(crate) async fn think(&mut self) -> bool {
        let millis = self.random.next_u64() % (self.pause_ms + 1);
        tokio::time::sleep(Duration::from_millis(millis)).await;
        while self.signals.hold.load(Ordering::SeqCst) && !self.signals.end.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        !self.signals.end.load(Ordering::SeqCst)
    }

    /// A number from 0 to `bound`, inclusive.
    pub(crate) fn choose(&mut self, bound: usize) -> usize {
        self.random.up_to(bound)
    }

    /// Asks, and counts what came of it.
    pub(crate) async fn ask(&self, request: Request) -> Outcome {
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
                Err(Fate::NotMade)
            }
            Err(Failure::Unknown(_)) => {
                records.unknown += 1;
                Err(Fate::Unknown)
            }
            Err(Failure::Defect(what)) => {
                records.defects.push(format!("{what}, to {asked}"));
                Err(Fate::Unknown)
            }
        }
    }

    /// Records an answer that no request of this kind may have.
    pub(crate) fn strange(&self, asked: &str, answer: &Answer) {
        self.history.records().defects.push(format!("{asked} was answered with {answer:?}"));
    }

    /// Asks for a transaction under a token again and again until its outcome is known, as long as
    /// the store remembers the token. Gives the fate of all its writes.
    pub(crate) async fn insist(&mut self, token: String, writes: Vec<Write>) -> Fate {
        let begun = self.endpoint.now_seconds();
        let mut uncertain = false;
        for _ in 0..ATTEMPTS_MAX {
            let request = Request::Transact(Some(token.clone()), writes.clone());
            match self.ask(request).await {
                Ok(Answer::Transacted) => return Fate::Acknowledged,
                // The attempt before may still be under way, and succeed.
                Ok(Answer::Cancelled) if uncertain => return Fate::Unknown,
                Ok(Answer::Cancelled) => return Fate::NotMade,
                Ok(other) => {
                    self.strange("a transaction", &other);
                    return Fate::Unknown;
                }
                Err(fate) => uncertain |= fate == Fate::Unknown,
            }
            // The time is looked at last: it may be moved ahead while this client thinks.
            let goes_on = self.think().await;
            let remembered = self.endpoint.now_seconds() < begun + TOKEN_SECONDS;
            if !goes_on || !remembered {
                break;
            }
        }
        if uncertain { Fate::Unknown } else { Fate::NotMade }
    }
}

/// Attempts of one transaction at most; a cluster heals long before.
const ATTEMPTS_MAX: usize = 200;
/// A token is good for ten minutes; one less for clocks that differ.
const TOKEN_SECONDS: u64 = 540;

/// A number as an attribute value's number.
pub(crate) fn number(value: u64) -> Number {
    Number::from(value)
}

/// An item with its key and the number of the write that stores it.
pub(crate) fn item(key: &str, id: u64) -> Item {
    Item::new().with(KEY, key).with(WRITE_ID, number(id))
}

/// A write without a condition.
pub(crate) fn write(key: &str, change: Change) -> Write {
    Write { key: key.to_owned(), change, condition: None }
}

/// An update that also stores the number of the write: `SET w = :w` and whatever follows.
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
