//! Seeded data for the demonstration: a seed gives the same votes and films on every machine.
//!
//! The module is pure: it does no I/O.

use std::collections::BTreeMap;

use model::{AttributeValue, Item, Number};

/// A small random number generator (SplitMix64): reproducible, not cryptographic.
#[derive(Clone, Debug)]
pub(crate) struct Generator(u64);

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `bound` (exclusive); 0 if the bound is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }
}

/// The number of polls.
pub(crate) const POLLS: u64 = 6;

/// One vote: its counter, slot and points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    pub(crate) counter: String,
    pub(crate) slot: u64,
    pub(crate) points: i64,
}

/// Returns the next vote. Some are corrections with negative points.
pub(crate) fn vote(generator: &mut Generator, slots: u64) -> Vote {
    let poll = generator.below(POLLS);
    let points = if generator.below(20) == 0 { -1 } else { 1 };
    Vote { counter: format!("poll-{poll}"), slot: generator.below(slots), points }
}

/// The fate of a film in the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilmEnd {
    /// The film expires. TTL deletes it, and the archive contains it.
    Expires,
    /// The film stays in the table. Its expiry time is far away or missing.
    Stays,
    /// The film is deleted explicitly before it expires. Neither the table nor the archive contains it.
    DeletedByHand,
}

/// Returns the film with a number, and its fate. `now` and `soon` are seconds since 1970.
pub(crate) fn film(generator: &mut Generator, number: u64, now: u64, soon: u64) -> (Item, FilmEnd) {
    let fate = match number % 10 {
        0..=3 => FilmEnd::Expires,
        4 => FilmEnd::DeletedByHand,
        _ => FilmEnd::Stays,
    };
    let words = ["Silent", "Northern", "Last", "Paper", "Golden", "Broken", "Second", "Distant"];
    let things = ["River", "Letter", "Harbour", "Signal", "Garden", "Winter", "Engine", "Crossing"];
    let word = |list: &[&str; 8], at: u64| {
        usize::try_from(at).ok().and_then(|at| list.get(at)).copied().unwrap_or("Film").to_owned()
    };
    let title = format!(
        "The {} {} {number}",
        word(&words, generator.below(8)),
        word(&things, generator.below(8))
    );
    let decimal =
        |whole: u64, tenth: u64| format!("{whole}.{tenth}").parse().unwrap_or(Number::ZERO);
    let info = BTreeMap::from([
        ("rating".to_owned(), AttributeValue::N(decimal(generator.below(10), generator.below(10)))),
        ("rank".to_owned(), AttributeValue::N(Number::from(number))),
        ("plot".to_owned(), AttributeValue::S("A stranger arrives. ".repeat(3))),
        (
            "genres".to_owned(),
            AttributeValue::Ss(["Drama".to_owned(), format!("G{}", generator.below(5))].into()),
        ),
        (
            "budget".to_owned(),
            AttributeValue::N("12345678901234567890.123456789".parse().unwrap_or(Number::ZERO)),
        ),
    ]);
    let mut item = Item::new()
        .with("year", Number::from(1950 + generator.below(75)))
        .with("title", title)
        .with("info", AttributeValue::M(info));
    match fate {
        FilmEnd::Expires => {
            let time = Number::from(now + 1 + generator.below(soon.saturating_sub(now + 1)));
            item.insert("expires_at".to_owned(), AttributeValue::N(time));
        }
        FilmEnd::DeletedByHand => {
            item.insert("expires_at".to_owned(), AttributeValue::N(Number::from(soon)));
        }
        FilmEnd::Stays => {
            let year = 365 * 24 * 60 * 60;
            item.insert("expires_at".to_owned(), AttributeValue::N(Number::from(now + year)));
        }
    }
    (item, fate)
}

/// Returns the next state of a film, or `None` for a delete. Every state contains the number of its
/// edit, so it differs from the previous state.
pub(crate) fn edit(generator: &mut Generator, key: &Item, number: u64) -> Option<Item> {
    if generator.below(12) == 0 {
        return None;
    }
    let info = BTreeMap::from([
        ("edit".to_owned(), AttributeValue::N(Number::from(number))),
        ("rank".to_owned(), AttributeValue::N(Number::from(generator.below(5000)))),
        ("plot".to_owned(), AttributeValue::S("Everything is different. ".repeat(2))),
    ]);
    Some(key.clone().with("info", AttributeValue::M(info)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_reproducible() {
        let votes = |seed| {
            let mut generator = Generator::new(seed);
            (0..100).map(|_| vote(&mut generator, 20)).collect::<Vec<_>>()
        };
        assert_eq!(votes(1), votes(1));
        assert_ne!(votes(1), votes(2));
        assert!(votes(1).iter().all(|vote| vote.slot < 20));
        let mut generator = Generator::new(1);
        let films: Vec<_> = (0..20).map(|n| film(&mut generator, n, 1000, 5000)).collect();
        assert_eq!(films.iter().filter(|(_, fate)| *fate == FilmEnd::Expires).count(), 8);
        for (item, fate) in films {
            let time = item["expires_at"].as_number().unwrap().to_u64().unwrap();
            assert_eq!(fate == FilmEnd::Expires, (1001..5000).contains(&time));
        }
    }
}
