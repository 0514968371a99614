//! Messages between places: each arrives after a time of its own, or twice, or never.
//!
//! Place 0 are the clients, the others are the nodes.

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
    /// Links that nothing passes, and how many faults want that.
    blocked: BTreeMap<(usize, usize), u32>,
    one_way: BTreeSet<(usize, usize)>,
    loss_percent: u64,
    delay_ms: u64,
    duplicate_percent: u64,
    /// Of each link the latest arrival that was chosen.
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
    /// A network without faults.
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

    /// Blocks a link for one fault, or takes that back.
    pub fn block(&self, from: usize, to: usize, on: bool) {
        let mut state = self.state();
        let count = state.blocked.entry((from, to)).or_default();
        *count = if on { *count + 1 } else { count.saturating_sub(1) };
    }

    /// Says that a link is blocked in one direction only, for the counters.
    pub fn mark_one_way(&self, from: usize, to: usize, on: bool) {
        let mut state = self.state();
        if on {
            state.one_way.insert((from, to));
        } else {
            state.one_way.remove(&(from, to));
        }
    }

    /// Sets how many of a hundred messages are lost.
    pub fn set_loss(&self, percent: u64) {
        self.state().loss_percent = percent;
    }

    /// Sets how long messages take at most, beside what they always take.
    pub fn set_delay(&self, millis: u64) {
        self.state().delay_ms = millis;
    }

    /// Sets how many of a hundred messages between nodes arrive twice.
    pub fn set_duplicates(&self, percent: u64) {
        self.state().duplicate_percent = percent;
    }

    /// Ends every fault.
    pub fn heal(&self) {
        let mut state = self.state();
        let latest = std::mem::take(&mut state.latest);
        *state = State { latest, ..State::default() };
    }

    /// After which times a message sent now arrives: never, once, or twice.
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

    /// Waits as long as one message takes. Gives whether it arrives.
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
