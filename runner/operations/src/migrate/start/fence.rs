//! The fence of a migration: the second up to which stream records have no effect, because a
//! backfill reads their writes.
//!
//! The order matters. The migration becomes active first, so that functions apply every later
//! change from the stream. The backfill begins after the second of the fence.

use std::time::{Duration, Instant};

use control::{Expect, Followed};
use rules::migration::plan::Direction;

use crate::migrate::context::Context;
use crate::migrate::failure::{Result, fatal};
use crate::migrate::start::record_time::RecordTime;
use client::endpoint;

/// Maximum attempts to become active before the second of the fence. One attempt is enough if a
/// write takes milliseconds. Each retry sets the fence further ahead.
const FENCES_MAX: u32 = 5;
/// Timeout of the wait for a fence, which is at most some seconds ahead.
const FENCE_LIMIT: Duration = Duration::from_secs(30);
/// Maximum lead of a fence in seconds. With the margin after it, the fence must pass within the
/// timeout.
const LEAD_SECONDS_MAX: i64 = 20;
const FENCE_LOOK: Duration = Duration::from_millis(50);
/// Seconds between the fence and the backfill, for one clock and for several. A record has the time
/// of the machine that made it. The backfill must not read a write whose record counts as later
/// than the fence. A local store of one process has one clock. The clocks of DynamoDB's machines,
/// and of a store of several processes, differ by far less than this.
const AFTER_FENCE: [i64; 2] = [1, 5];
/// The same margin for writers that are blocked until the fence has passed.
const WRITERS_AFTER_FENCE: [i64; 2] = [0, 2];

/// The action that begins after a fence.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FenceUse {
    /// A read of tables, while writers continue.
    Read,
    /// Writers, which are blocked until the fence has passed.
    Writers,
}

impl FenceUse {
    /// Returns the seconds of store time that have to pass after the fence.
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

/// The conditions under which a migration becomes active.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence<'f> {
    pub(crate) direction: Direction,
    pub(crate) fingerprint: &'f str,
    /// The state that the migration must have.
    pub(crate) expect: Expect<'f>,
    pub(crate) after: FenceUse,
}

/// Makes a migration active in a direction, and waits until its fence has passed, by the store's
/// clock and by the time of its stream records. Returns the fence: the second, since 1970, up to
/// which stream records have no effect.
///
/// The migration became active in that second or before, so records after the fence are applied. A
/// read after this call sees all writes up to the fence. The records of later writes have a later
/// second.
///
/// # Errors
/// When the control table cannot be written, the store's clock is frozen, or records do not show a
/// later time.
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
            // The migration may have become active only after its fence. Effects that are applied
            // before the next fence take precedence over a backfill, so the next fence has to be in
            // time. If it is not, a comparison finds the differences.
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
        "a write to the control table takes longer than {LEAD_SECONDS_MAX} seconds; run the command again for `{name}`"
    ))
}

/// Waits until the store's time is later than `second`, in seconds since 1970.
pub(crate) async fn wait_for(context: &Context, name: &str, second: i64) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < FENCE_LIMIT {
        if context.now().await > second {
            return Ok(());
        }
        tokio::time::sleep(FENCE_LOOK).await;
    }
    Err(fatal!(
        "the store's clock is frozen, and the migration `{name}` needs a running clock: run `weir clock resume`, then run this command again"
    ))
}
