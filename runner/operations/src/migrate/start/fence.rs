//! The fence of a migration: the second up to which stream records have no effect, because the
//! backfill reads the writes of these records.
//!
//! First, the migration becomes active, so that functions apply every later change from the stream.
//! The backfill begins only after the second of the fence. If it began earlier, a write between the
//! read of the backfill and the fence would be lost.

use std::time::{Duration, Instant};

use control::{Expect, Followed};
use rules::migration::plan::Direction;

use crate::migrate::context::Context;
use crate::migrate::failure::{Result, fatal};
use crate::migrate::start::record_time::RecordTime;
use client::endpoint;

/// Maximum attempts to make the migration active before the second of its fence. One attempt is
/// sufficient if a write takes milliseconds. Each retry sets the fence further in the future.
const FENCES_MAX: u32 = 5;
/// Timeout of the wait for a fence, which is at most `LEAD_SECONDS_MAX` in the future.
const FENCE_LIMIT: Duration = Duration::from_secs(30);
/// Maximum seconds by which a fence is set in the future. The lead and the margin after the fence
/// must be less than the timeout.
const LEAD_SECONDS_MAX: i64 = 20;
const FENCE_LOOK: Duration = Duration::from_millis(50);
/// Seconds between the fence and the backfill, for a store with one clock and with several clocks.
/// A record has the time of the machine that made the record. The backfill must not read a write
/// whose record is later than the fence. A local store of one process has one clock. The clocks of
/// DynamoDB's machines, and of a store of several processes, differ by far less than 5 seconds.
const AFTER_FENCE: [i64; 2] = [1, 5];
/// Seconds between the fence and the first write after writers are unblocked, for a store with one
/// clock and with several clocks.
const WRITERS_AFTER_FENCE: [i64; 2] = [0, 2];

/// The action that waits for a fence.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FenceUse {
    /// The backfill or a comparison reads tables, while clients write.
    Read,
    /// Writers resume; they are blocked until the fence has passed.
    Writers,
}

impl FenceUse {
    /// Returns the seconds of store time that must pass between the fence and the action.
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
/// The migration became active at this second or earlier, so all records after the fence are
/// applied. A read after this call sees all writes up to the fence. The records of later writes
/// have a later second.
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
            // The migration may have become active only after its fence, so another fence is set.
            // Effects of records before the new fence may already be applied, and take precedence
            // over a backfill. If this causes differences, a comparison finds them.
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

/// Waits until the store's clock is later than `second`, in seconds since 1970.
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
