//! The network between the clients and the nodes: each message arrives after a random delay,
//! possibly twice or never.
//!
//! Place 0 is the place of the clients; the other places are the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use locks::Mutex;
use tokio::time::Instant;

use super::environment::{Dice, Environment};

/// The place of all clients.
pub const CLIENTS: usize = 0;

#[derive(Debug, Default)]
struct State {
    /// The blocked links, each with the number of faults that block it.
    blocked: BTreeMap<(usize, usize), u32>,
    one_way: BTreeSet<(usize, usize)>,
    loss_percent: u64,
    delay_ms: u64,
    duplicate_percent: u64,
    /// The latest arrival time of a message on each link.
    latest: BTreeMap<(usize, usize), Instant>,
}

/// The network of one world.
#[derive(Debug)]
pub struct Network {
    environment: Arc<Environment>,
    dice: Dice,
    state: Mutex<State>,
}

impl Network {
    /// Creates a network without faults.
    #[must_use]
    pub fn new(environment: &Arc<Environment>) -> Arc<Self> {
        Arc::new(Self {
            environment: Arc::clone(environment),
            dice: Dice::new(environment.seed, "network"),
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Blocks a link for one fault, or removes one such block.
    pub fn block(&self, from: usize, to: usize, on: bool) {
        let mut state = self.state();
        let count = state.blocked.entry((from, to)).or_default();
        *count = if on { *count + 1 } else { count.saturating_sub(1) };
    }

    /// Records that a link is blocked in only one direction, so that its messages are counted
    /// separately.
    pub fn mark_one_way(&self, from: usize, to: usize, on: bool) {
        let mut state = self.state();
        if on {
            state.one_way.insert((from, to));
        } else {
            state.one_way.remove(&(from, to));
        }
    }

    /// Sets the percentage of lost messages.
    pub fn set_loss(&self, percent: u64) {
        self.state().loss_percent = percent;
    }

    /// Sets the maximum number of milliseconds by which messages are delayed in addition to the normal delay.
    pub fn set_delay(&self, millis: u64) {
        self.state().delay_ms = millis;
    }

    /// Sets the percentage of messages between nodes that arrive twice.
    pub fn set_duplicates(&self, percent: u64) {
        self.state().duplicate_percent = percent;
    }

    /// Ends every fault.
    pub fn end_faults(&self) {
        let mut state = self.state();
        let latest = std::mem::take(&mut state.latest);
        *state = State { latest, ..State::default() };
    }

    /// Returns the delays after which a message that is sent now arrives. There is one delay for
    /// each arrival: none for a lost message, two for a duplicated message.
    #[must_use]
    pub fn route(&self, from: usize, to: usize) -> Vec<Duration> {
        let coverage = &self.environment.coverage;
        let mut state = self.state();
        if state.blocked.get(&(from, to)).is_some_and(|count| *count > 0) {
            let one_way = state.one_way.contains(&(from, to));
            if one_way {
                coverage.hit("one-way partition");
            } else if from == CLIENTS || to == CLIENTS {
                coverage.hit("partition");
            }
            return Vec::new();
        }
        let loss = state.loss_percent;
        if loss > 0 && self.dice.roll(|random| random.chance(loss)) {
            coverage.hit("loss");
            return Vec::new();
        }
        let mut delay = self.dice.micros(50, 600);
        if state.delay_ms > 0 {
            coverage.hit("delay");
            delay += self.dice.micros(0, state.delay_ms * 1_000);
        }
        let mut delays = vec![delay];
        let duplicates = state.duplicate_percent;
        let between_nodes = from != CLIENTS && to != CLIENTS;
        if between_nodes && duplicates > 0 && self.dice.roll(|random| random.chance(duplicates)) {
            coverage.hit("duplication");
            delays.push(delay + self.dice.micros(0, 400_000));
        }
        let arrival = Instant::now() + delay;
        let latest = state.latest.entry((from, to)).or_insert(arrival);
        if arrival < *latest {
            coverage.hit("reordering");
        }
        *latest = arrival.max(*latest);
        delays
    }

    /// Waits for the delay of one message. Returns whether it arrives.
    pub async fn hop(&self, from: usize, to: usize) -> bool {
        match self.route(from, to).first() {
            Some(delay) => {
                tokio::time::sleep(*delay).await;
                true
            }
            None => false,
        }
    }
}
