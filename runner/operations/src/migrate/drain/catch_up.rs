//! Waits until the records in a migration's streams are applied: nearly all records before a switch
//! blocks writers, and the remaining records while writers are blocked.
//!
//! This module writes nothing.

use std::time::{Duration, Instant};

use control::Outcome;

use crate::migrate::context::{Context, LOOK_EVERY};
use crate::migrate::drain::proof::Drain;
use crate::migrate::drain::stream_lag::{Applied, FOLLOWED_SECONDS_MAX};
use crate::migrate::failure::{Result, refused};
use client::output::say;

/// Maximum number of waiting records at which a switch may block writers. The function `migration`
/// applies this number of records in a second.
const FEW_RECORDS: u64 = 1_000;
/// Maximum time for which a read of the streams may continue after the time limit of a switch. If a
/// command stops during a read, its stream positions are lost. The command that resumes the switch
/// then reads the streams from the beginning, while writers are blocked.
pub(crate) const LAST_LOOK: Duration = Duration::from_secs(10);

/// Reads the streams until at most `FEW_RECORDS` records wait to be applied, none of them for
/// unusually long. Writers are not blocked meanwhile.
///
/// # Errors
/// When a record can never be applied, or the streams cannot be read.
pub(crate) async fn caught_up(
    context: &Context,
    name: &str,
    drain: &mut Drain,
    limit: Duration,
) -> Result<Outcome> {
    let started = Instant::now();
    let (mut said_at, mut said) = (Instant::now(), (String::new(), false));
    let mut applied = Applied::default();
    loop {
        let most = limit.saturating_sub(started.elapsed()).saturating_add(LAST_LOOK);
        let Ok(look) = tokio::time::timeout(most, drain.look()).await else {
            let seconds = started.elapsed().as_secs();
            say(&format!("not caught up: the streams could not be read completely in {seconds} s"));
            return Ok(Outcome::TimedOut);
        };
        let look = look?;
        applied.hear(&look, Instant::now());
        if let Some(hopeless) = look.hopeless {
            return Err(refused!("the streams can never be drained: {hopeless}"));
        }
        // If no function applies changes now, probably no function would apply them while writers
        // are blocked, so writers must not be blocked yet.
        let late = match &look.oldest {
            Some((second, table)) => {
                let age = context.now().await.saturating_sub(*second);
                (age > FOLLOWED_SECONDS_MAX).then_some((age, table))
            }
            None => None,
        };
        let is_much = look.waiting > FEW_RECORDS || look.is_partial || late.is_some();
        let Some(missing) = look.missing.filter(|_| is_much) else { return Ok(Outcome::Done) };
        let more = if look.is_partial { "or more records" } else { "records" };
        let what = format!("{} {more} are not applied yet: {missing}", look.waiting);
        let is_followed = applied.is_followed(Instant::now());
        let since = |is_asked| oldest(name, late.as_ref(), is_asked);
        if started.elapsed() > limit {
            let since = since(is_followed != Some(true));
            say(&format!("not caught up after {} s: {what}{since}", limit.as_secs()));
            return Ok(Outcome::TimedOut);
        }
        // The age of waiting changes grows with every check. So the command does not report a
        // status in which only this age has changed.
        let is_idle = is_followed == Some(false);
        let news = (what, is_idle);
        if news != said && said_at.elapsed() > Duration::from_secs(2) {
            say(&format!("{}{}", news.0, since(is_idle)));
            (said_at, said) = (Instant::now(), news);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Describes how long the oldest change has been waiting; returns an empty string if `late` is
/// `None`. With `is_asked`, adds advice for the case that no change was applied.
fn oldest(name: &str, late: Option<&(i64, &String)>, is_asked: bool) -> String {
    let Some((age, table)) = late else { return String::new() };
    let asked = match is_asked {
        true => format!(
            ", and no change was applied meanwhile: check that a function reads this stream, or run `weir migrate work {name}`"
        ),
        false => String::new(),
    };
    format!("; the oldest record, of table `{table}`, has been waiting for {age} s{asked}")
}

/// The result of a drain proof: the number of shards, or [`Outcome::TimedOut`].
pub(crate) type Proof = Result<usize, Outcome>;

/// Reads the streams until all records are applied. A pass during the first `settle` proves
/// nothing, because a stream may deliver a record as late as `settle` after the record's write was
/// acknowledged.
pub(crate) async fn drained(drain: &mut Drain, limit: Duration, settle: Duration) -> Result<Proof> {
    let started = Instant::now();
    loop {
        let may_end = started.elapsed() >= settle;
        let look = drain.look().await?;
        if let Some(hopeless) = look.hopeless {
            return Err(refused!("the streams can never be drained: {hopeless}"));
        }
        match look.missing {
            None if may_end => return Ok(Ok(look.shards)),
            Some(missing) if started.elapsed() > limit.saturating_add(settle) => {
                say(&format!("not drained after {} s: {missing}", limit.as_secs()));
                return Ok(Err(Outcome::TimedOut));
            }
            _ => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

/// Limits the total time of a drain proof. The limit also interrupts a read of the streams.
pub(crate) async fn within(
    most: Duration,
    proof: impl Future<Output = Result<Proof>>,
) -> Result<Proof> {
    if let Ok(proved) = tokio::time::timeout(most, proof).await {
        return proved;
    }
    say(&format!("not drained: the streams could not be read completely in {} s", most.as_secs()));
    Ok(Err(Outcome::TimedOut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_endless_read_does_not_block_forever() {
        let limit = Duration::from_millis(20);
        assert_eq!(within(limit, std::future::pending()).await, Ok(Err(Outcome::TimedOut)));
        assert_eq!(within(limit, async { Ok(Ok(3)) }).await, Ok(Ok(3)));
    }
}
