//! The fence of a migration: the second up to which stream records say nothing, because a backfill reads
//! what they say.
//!
//! The order matters: the migration is made active first, so that every later change comes through the
//! stream; what comes after the fence begins in a later second than the fence.

use std::time::{Duration, Instant};

use control::{Expect, Followed};
use rules::migration::plan::Direction;

use crate::migrate::context::Context;
use crate::migrate::failure::{Result, fatal};
use crate::migrate::start::record_time::RecordTime;
use client::endpoint;

/// Attempts to become active before the fence: one is enough where a write takes milliseconds, and the
/// next ones leave it more time.
const FENCES_MAX: u32 = 5;
/// How long is waited for a fence, which is some seconds away at most.
const FENCE_LIMIT: Duration = Duration::from_secs(30);
/// How far ahead a fence is at most, in seconds: with its margin it must pass within the limit.
const LEAD_SECONDS_MAX: i64 = 20;
const FENCE_LOOK: Duration = Duration::from_millis(50);
/// Seconds after its fence in which a backfill begins. A record has the second of the machine that
/// made it, and what it wrote must not have been read if it says nothing. A local store of one process
/// has one clock; DynamoDB's machines, and those of a store of several, differ by far less than this.
const AFTER_FENCE: [i64; 2] = [1, 5];
/// The same for writers that go on after the fence, who are held up meanwhile.
const WRITERS_AFTER_FENCE: [i64; 2] = [0, 2];

/// What comes after a fence.
#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    /// Tables are read, while writers go on.
    Read,
    /// Writers go on, who are held up until then.
    Writers,
}

impl After {
    /// Seconds of the store's time that have to pass first.
    pub(crate) async fn seconds(self, context: &Context) -> i64 {
        let [one_clock, several] = match self {
            Self::Read => AFTER_FENCE,
            Self::Writers => WRITERS_AFTER_FENCE,
        };
        match endpoint::read_clock(&context.endpoint).await {
            Some(clock) if clock.is_only_one => one_clock,
            _ => several,
        }
    }
}

/// How a migration becomes active.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence<'f> {
    /// Which way it runs.
    pub(crate) direction: Direction,
    pub(crate) fingerprint: &'f str,
    /// What its state must be.
    pub(crate) expect: Expect<'f>,
    pub(crate) after: After,
}

/// Makes a migration active in a direction, and waits until its fence has passed: by the store's clock,
/// and by the time that its stream records show. Returns the fence: the second, since 1970, up to which
/// stream records say nothing.
///
/// It became active in that second or before, so what is delivered after the fence was never passed
/// over; whoever reads tables after this returns sees what was written up to the fence; and the record
/// of each write from then on shows a later second.
///
/// # Errors
/// When the control table cannot be written, the store's clock stands still, or its records do not show
/// a later time.
pub(crate) async fn activate(
    context: &Context,
    name: &str,
    Fence { direction, fingerprint, expect, after }: Fence<'_>,
) -> Result<i64> {
    let margin = after.seconds(context).await;
    let mut records = RecordTime::open(context).await?;
    let mut lead = 1;
    for _ in 0..FENCES_MAX {
        let begun = context.now().await;
        let since = begun + lead;
        let active = Some(Followed { direction, fingerprint: fingerprint.to_owned(), since });
        context.control.set_active(name, expect, active).await?;
        let took = context.now().await - begun;
        if took > lead {
            // It may have become active after its fence. What is applied before the next one is
            // there counts more than a backfill, so that one has to be in time; if it is not, a
            // comparison finds what has come to differ.
            lead = took.saturating_mul(2).min(LEAD_SECONDS_MAX);
            continue;
        }
        let passed = match wait_for(context, name, since + margin).await {
            Ok(()) => records.pass(since).await,
            stands => stands,
        };
        if let Err(problem) = passed {
            context.control.set_active(name, expect, None).await?;
            return Err(problem);
        }
        return Ok(since);
    }
    context.control.set_active(name, expect, None).await?;
    Err(fatal!(
        "the control table takes longer than {LEAD_SECONDS_MAX} seconds to write; say this again for `{name}`"
    ))
}

/// Waits until a second of the store's time has passed.
pub(crate) async fn wait_for(context: &Context, name: &str, second: i64) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < FENCE_LIMIT {
        if context.now().await > second {
            return Ok(());
        }
        tokio::time::sleep(FENCE_LOOK).await;
    }
    Err(fatal!(
        "the store's clock stands still, and a migration needs one that runs: `weir clock resume`, then say this again for `{name}`"
    ))
}
