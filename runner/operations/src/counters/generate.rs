//! `weir counters generate`: casts seeded votes and computes the expected totals.
//!
//! The same flags result in the same votes in the same order. The expected totals are computed only
//! from the votes, not from slots or by functions.

use std::collections::BTreeMap;

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::ProgressBar;
use locks::Mutex;
use model::Number;
use rules::counters::Counters;
use rules::counters::ballot::slot_of_voter;

use super::Place;
use super::ballots::Ballots;
use super::doubts::{DoubtfulVotes, Range};
use super::flags::TotalFlags;
use super::reading::total_of;
use super::voting::{VoteResult, vote};
use client::failure::{Failure, Result};
use client::interruption;
use client::output::counted;
use mapping::mix;

/// Maximum number of concurrent votes.
const VOTERS_AT_ONCE: u32 = 64;

/// Arguments of `weir counters generate`.
#[derive(Clone, Debug, Args)]
pub(super) struct GenerateArguments {
    /// Number of votes to cast
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    votes: u64,
    /// Number of counters to vote for
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    counters: u64,
    /// Number of voters who cast the votes
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    voters: u64,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prefix of the counters' names [default: g-SEED-]
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// How a vote's slot is chosen
    #[arg(long, value_enum, default_value_t = Spread::Random)]
    spread: Spread,
    /// Percentage of votes with negative points
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=100))]
    negative: u64,
    /// Maximum votes per second [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,
    /// Keep a ballot for each voter in this table, so that a voter's next vote replaces the
    /// previous vote
    #[arg(long, value_name = "TABLE")]
    ballots: Option<String>,
    /// Partition key attribute of the --ballots table
    #[arg(long, value_name = "ATTRIBUTE", default_value = "ballot", requires = "ballots")]
    ballot_key: String,
    /// Wait up to this many seconds for correct totals; exit code 3 if they differ
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    verify: Option<u64>,
}

/// The rule by which a vote's slot is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Spread {
    /// A random slot: spreads the load best
    Random,
    /// By the hash of the voter: one slot per voter
    Hash,
}

/// One vote.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Vote {
    voter: String,
    counter: String,
    slot: u32,
    points: i64,
}

/// The result of `weir counters generate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generated {
    pub(super) votes: u64,
    pub(super) took: Duration,
    /// Totals by counter.
    pub(super) totals: BTreeMap<String, CounterTally>,
    /// The votes that may or may not be counted.
    pub(super) doubts: DoubtfulVotes,
    /// Time from the last vote until the totals were correct; `None` if they were not correct in
    /// time.
    pub(super) lag: Option<Duration>,
    /// True if the totals were checked and differ.
    pub(super) differs: bool,
}

/// The votes of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CounterTally {
    /// The sum of all votes that were cast.
    pub(super) voted: i64,
    /// The expected total. It is a range if some votes may or may not be counted.
    pub(super) expected: Range,
    /// The total that was read; `None` if totals were not checked.
    pub(super) found: Option<Number>,
}

impl GenerateArguments {
    fn draw(&self, number: u64, which: u64, bound: u64) -> u64 {
        mix(mix(self.seed).wrapping_add(number.wrapping_mul(4)).wrapping_add(which)) % bound
    }

    fn voter(&self, number: u64) -> String {
        format!("v{}", self.draw(number, 0, self.voters))
    }

    /// Returns the vote with this number. With ballots, a voter has only one vote among all
    /// counters.
    fn vote(&self, number: u64, slots: u32) -> Vote {
        let draw = |which: u64, bound: u64| self.draw(number, which, bound);
        let voter = self.voter(number);
        let prefix = self.prefix.clone().unwrap_or_else(|| format!("g-{}-", self.seed));
        let slot = match self.spread {
            Spread::Random => u32::try_from(draw(2, u64::from(slots))).unwrap_or(0),
            Spread::Hash => slot_of_voter(&voter, slots),
        };
        let points = if draw(3, 100) < self.negative { -1 } else { 1 };
        Vote { counter: format!("{prefix}{}", draw(1, self.counters)), voter, slot, points }
    }

    /// Returns the numbers of the votes that one lane sends. Lanes run concurrently. With ballots,
    /// only a voter's last vote counts, so all votes of a voter go through one lane in order.
    fn numbers_of(&self, lane: u64, by_voter: bool) -> impl Iterator<Item = u64> {
        let (first, step) = if by_voter { (0, 1) } else { (lane, VOTERS_AT_ONCE as usize) };
        (first..self.votes).step_by(step).filter(move |number| {
            !by_voter || u64::from(slot_of_voter(&self.voter(*number), VOTERS_AT_ONCE)) == lane
        })
    }

    /// Returns the expected totals after all votes.
    fn expected(&self, slots: u32) -> BTreeMap<String, i64> {
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        let mut ballots: BTreeMap<String, Vote> = BTreeMap::new();
        for number in 0..self.votes {
            let vote = self.vote(number, slots);
            *sums.entry(vote.counter.clone()).or_default() += vote.points;
            if self.ballots.is_some()
                && let Some(before) = ballots.insert(vote.voter.clone(), vote)
            {
                *sums.entry(before.counter).or_default() -= before.points;
            }
        }
        sums
    }
}

/// Casts the votes, and waits for the totals if `verify` is set.
///
/// # Errors
/// When a vote is refused or a total cannot be read.
pub(super) async fn run(
    place: &Place,
    totals: &TotalFlags,
    arguments: &GenerateArguments,
) -> Result<Generated> {
    let slots = place.rule.slot_count;
    let expected = arguments.expected(slots);
    let template = "{bar:30} {pos}/{len} votes, {per_sec}";
    let progress = interruption::progress_bar(Some(arguments.votes), template, "votes cast");
    let ballots = arguments.ballots.as_ref().map(|table| Ballots {
        place,
        table: table.clone(),
        key: arguments.ballot_key.clone(),
    });
    let started = Instant::now();
    let doubts = cast_all(place, ballots.as_ref(), arguments, started, &progress).await?;
    progress.finish_and_clear();
    let took = started.elapsed();
    let tally = |counter: &str, voted: i64| CounterTally {
        voted,
        expected: doubts.range(counter, voted),
        found: None,
    };
    let totals_of = expected.into_iter().map(|(counter, voted)| {
        let tally = tally(&counter, voted);
        (counter, tally)
    });
    let mut generated = Generated {
        votes: arguments.votes,
        took,
        totals: totals_of.collect(),
        doubts,
        lag: None,
        differs: false,
    };
    if let Some(seconds) = arguments.verify {
        verify(place, totals, &mut generated, Duration::from_secs(seconds)).await?;
    }
    Ok(generated)
}

async fn cast_all(
    place: &Place,
    ballots: Option<&Ballots<'_>>,
    arguments: &GenerateArguments,
    started: Instant,
    progress: &ProgressBar,
) -> Result<DoubtfulVotes> {
    // All lanes share this list, so that doubtful votes are reported even if another lane fails.
    let doubts = Mutex::new(DoubtfulVotes::default());
    let noted = || doubts.lock();
    let lanes = (0..u64::from(VOTERS_AT_ONCE)).map(async |lane| {
        for number in arguments.numbers_of(lane, ballots.is_some()) {
            let drawn = arguments.vote(number, place.rule.slot_count);
            if let Some(rate) = arguments.rate {
                let due = Duration::from_micros(number.saturating_mul(1_000_000) / rate);
                tokio::time::sleep_until((started + due).into()).await;
            }
            match ballots {
                Some(ballots) => {
                    let points = Number::from(drawn.points);
                    ballots.vote("all", &drawn.voter, Some((&drawn.counter, points))).await?;
                }
                None => {
                    let Vote { counter, slot, points, .. } = &drawn;
                    if let VoteResult::Perhaps(reason) =
                        vote(place, counter, *slot, *points).await?
                    {
                        let slot = Counters::slot_key_text(counter, *slot);
                        noted().add(&slot, counter, *points, &reason);
                    }
                }
            }
            progress.inc(1);
        }
        Ok::<(), Failure>(())
    });
    let lanes = stream::iter(lanes).buffer_unordered(VOTERS_AT_ONCE as usize);
    let cast = lanes.try_for_each(async |()| Ok(())).await;
    let doubts = std::mem::take(&mut *noted());
    match (cast, doubts.votes) {
        (Ok(()), _) => Ok(doubts),
        (Err(error), 0) => Err(error),
        (Err(error), votes) => Err(error.with(|error| {
            format!(
                "{error}; before this error, {} may or may not have been counted: {}{}",
                counted(votes, "vote", "votes"),
                doubts.named.join("; "),
                doubts.unnamed().map(|more| format!("; and {more} more")).unwrap_or_default()
            )
        })),
    }
}

/// Reads the totals until they are correct or the timeout expires.
async fn verify(
    place: &Place,
    totals: &TotalFlags,
    generated: &mut Generated,
    longest: Duration,
) -> Result<()> {
    let started = Instant::now();
    loop {
        generated.differs = false;
        for (counter, tally) in &mut generated.totals {
            let sum = total_of(&place.client, totals, counter).await?.cells.sum();
            tally.found = Some(sum);
            generated.differs |= !tally.expected.has(sum);
        }
        if !generated.differs {
            generated.lag = Some(started.elapsed());
            return Ok(());
        }
        if started.elapsed() > longest {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: GenerateArguments,
    }

    fn arguments(flags: &[&str]) -> GenerateArguments {
        Line::parse_from(["weir"].iter().chain(flags)).arguments
    }

    #[test]
    fn equal_seeds_generate_equal_votes() {
        let (one, two) = (arguments(&["--seed", "7"]), arguments(&["--seed", "8"]));
        let votes = |arguments: &GenerateArguments| -> Vec<Vote> {
            (0..500).map(|number| arguments.vote(number, 20)).collect()
        };
        assert_eq!(votes(&one), votes(&one));
        assert_ne!(votes(&one), votes(&two));
        let negative = votes(&one).iter().filter(|vote| vote.points < 0).count();
        assert!((5..60).contains(&negative), "{negative}");
        let hash = arguments(&["--spread", "hash"]);
        let slots: BTreeMap<String, u32> =
            votes(&hash).into_iter().map(|vote| (vote.voter, vote.slot)).collect();
        assert!(votes(&hash).iter().all(|vote| slots[&vote.voter] == vote.slot));
    }

    #[test]
    fn every_vote_is_in_one_lane_and_with_ballots_in_its_voters() {
        let arguments = arguments(&["--votes", "1000", "--voters", "100"]);
        for by_voter in [false, true] {
            let lanes = (0..u64::from(VOTERS_AT_ONCE))
                .map(|lane| arguments.numbers_of(lane, by_voter).collect::<Vec<_>>())
                .collect::<Vec<_>>();
            let mut all = lanes.concat();
            all.sort_unstable();
            assert_eq!(all, (0..1000).collect::<Vec<_>>());
            assert!(lanes.iter().all(|numbers| numbers.is_sorted()));
            let voters = lanes.iter().map(|numbers| {
                let voters = numbers.iter().map(|number| arguments.voter(*number));
                voters.collect::<std::collections::BTreeSet<_>>().len()
            });
            let voters_of_lanes: usize = voters.sum();
            assert_eq!(voters_of_lanes == 100, by_voter, "{voters_of_lanes}");
        }
    }

    #[test]
    fn with_ballots_the_last_vote_of_each_voter_counts() {
        let arguments = arguments(&["--ballots", "b", "--voters", "10", "--votes", "1000"]);
        let mut last = BTreeMap::new();
        for number in 0..1000 {
            let vote = arguments.vote(number, 20);
            last.insert(vote.voter.clone(), vote);
        }
        let sum: i64 = last.values().map(|vote| vote.points).sum();
        assert_eq!(arguments.expected(20).values().sum::<i64>(), sum);
    }
}
