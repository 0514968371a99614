//! Waiting until the streams of a migration are drained: before writers are held up, as long as somebody
//! applies what they wrote, and while they are, until all of it is proved.
//!
//! Nothing is written here.

use std::time::{Duration, Instant};

use control::Outcome;

use super::drain::Drain;
use super::failure::{Result, refused};
use super::following::{Applied, FOLLOWED_SECONDS_MAX};
use super::{Context, LOOK_EVERY};
use client::output::say;

/// Records that may be left when writers are stopped: the function does so many in a second.
const FEW_RECORDS: u64 = 1_000;
/// How long a look at the streams may go on when the time for a switch is over. Whoever takes a
/// switch over reads them from their beginning, while writers are held up.
pub(super) const LAST_LOOK: Duration = Duration::from_secs(10);

/// Looks until everything that was written so far is drained, or until few records are left, which
/// others may write. Nobody is blocked meanwhile.
///
/// # Errors
/// When that never will be, or the streams cannot be read.
pub(super) async fn caught_up(
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
            say(&format!(
                "not caught up: the streams could not be read to their end in {seconds} s"
            ));
            return Ok(Outcome::TimedOut);
        };
        let look = look?;
        applied.hear(&look, Instant::now());
        if let Some(hopeless) = look.hopeless {
            return Err(refused!("it would not be drained however long it takes: {hopeless}"));
        }
        // What nobody applies now, nobody would apply while writers are held up.
        let late = match &look.oldest {
            Some((second, table)) => {
                let age = context.now().await.saturating_sub(*second);
                (age > FOLLOWED_SECONDS_MAX).then_some((age, table))
            }
            None => None,
        };
        let is_much = look.waiting > FEW_RECORDS || look.is_partial || late.is_some();
        let Some(missing) = look.missing.filter(|_| is_much) else { return Ok(Outcome::Done) };
        let more = if look.is_partial { "and more" } else { "records" };
        let what = format!("{} {more} are not applied yet: {missing}", look.waiting);
        let is_followed = applied.is_followed(Instant::now());
        let since = |is_asked| oldest(name, late.as_ref(), is_asked);
        if started.elapsed() > limit {
            let since = since(is_followed != Some(true));
            say(&format!("not caught up after {} s: {what}{since}", limit.as_secs()));
            return Ok(Outcome::TimedOut);
        }
        // How old the oldest is grows all the time; that is no news.
        let is_idle = is_followed == Some(false);
        let news = (what, is_idle);
        if news != said && said_at.elapsed() > Duration::from_secs(2) {
            say(&format!("{}{}", news.0, since(is_idle)));
            (said_at, said) = (Instant::now(), news);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// For how long the oldest change of a table waits, if that is long. `is_asked` if none was seen applied
/// meanwhile.
fn oldest(name: &str, late: Option<&(i64, &String)>, is_asked: bool) -> String {
    let Some((age, table)) = late else { return String::new() };
    let asked = match is_asked {
        true => format!(
            ", and none was seen applied: does a function follow its stream? `weir migrate work {name}` does"
        ),
        false => String::new(),
    };
    format!("; the oldest, of `{table}`, for {age} s{asked}")
}

/// What a drain proof comes to: the number of shards, or [`Outcome::TimedOut`].
pub(super) type Proof = Result<usize, Outcome>;

/// Looks until everything is drained. What is read before `settle` has passed does not count: a stream may bring a record
/// that long after its write was acknowledged.
pub(super) async fn drained(drain: &mut Drain, limit: Duration, settle: Duration) -> Result<Proof> {
    let started = Instant::now();
    loop {
        let may_end = started.elapsed() >= settle;
        let look = drain.look().await?;
        if let Some(hopeless) = look.hopeless {
            return Err(refused!("it will not be drained however long it takes: {hopeless}"));
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

/// A drain proof that ends in time, also where one look at the streams takes longer.
pub(super) async fn within(
    most: Duration,
    proof: impl Future<Output = Result<Proof>>,
) -> Result<Proof> {
    if let Ok(proved) = tokio::time::timeout(most, proof).await {
        return proved;
    }
    say(&format!(
        "not drained: the streams could not be read to their end in {} s",
        most.as_secs()
    ));
    Ok(Err(Outcome::TimedOut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_look_that_does_not_end_holds_nobody_up_for_ever() {
        let limit = Duration::from_millis(20);
        assert_eq!(within(limit, std::future::pending()).await, Ok(Err(Outcome::TimedOut)));
        assert_eq!(within(limit, async { Ok(Ok(3)) }).await, Ok(Ok(3)));
    }
}
