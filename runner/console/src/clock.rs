//! The store's clock and the switch of fault injection, for the head of each page.

use std::time::Duration;

use client::endpoint::{self, ClockReading};
use maud::{Markup, html};

use crate::context::Context;
use crate::parts::{form, time};

/// The timeout of a read of the store's clock. After it, the page is shown without the clock and
/// its buttons. So the timeout must be long enough for a busy store.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the time of a local store as a string, in UTC; `None` if it has no clock, or does not
/// answer.
pub(crate) async fn text(context: &Context) -> Option<String> {
    read(context).await.map(|clock| time::text(clock.now_ms.div_euclid(1_000)))
}

/// Reads the clock of a local store; `None` if the store has no clock, or does not answer.
pub(crate) async fn read(context: &Context) -> Option<ClockReading> {
    if context.is_on_aws() {
        return None;
    }
    let reading = endpoint::read_clock(context.endpoint());
    tokio::time::timeout(PATIENCE, reading).await.ok().flatten()
}

/// Returns the HTML of the clock with its buttons, and the switch of fault injection. After the
/// user presses a button, the browser returns to `address`.
pub(crate) fn head(context: &Context, clock: Option<ClockReading>, address: &str) -> Markup {
    let writes = context.writes();
    html! {
        section.clock aria-label="Clock" {
            @match clock {
                Some(clock) => {
                    span { "Store's clock "
                        span data-figure="clock" { (time::text(clock.now_ms.div_euclid(1_000))) } " UTC"
                        @if clock.is_frozen { " (frozen)" }
                    }
                    (form::button(writes, "/clock/advance", address, "+1 h", &[("by", "1h")]))
                    (form::button(writes, "/clock/advance", address, "+1 day", &[("by", "1d")]))
                    (form::button(writes, "/clock/sweep", address, "Delete expired", &[]))
                },
                None if context.is_on_aws() => span { "The clock of AWS cannot be advanced" },
                None => span { "The store does not answer, or its clock cannot be advanced" },
            }
            (chaos(context, address))
        }
    }
}

/// Returns the switch of fault injection; without `--chaos`, a hint about this flag.
fn chaos(context: &Context, address: &str) -> Markup {
    let writes = context.writes();
    html! {
        @match context.chaos() {
            Some(chaos) if chaos.is_on() => {
                span.wait { "Chaos on" }
                (form::button(writes, "/chaos", address, "Turn off", &[("to", "off")]))
            },
            Some(_) => {
                span { "Chaos off" }
                (form::button(writes, "/chaos", address, "Turn on", &[("to", "on")]))
            },
            None if context.is_of_weir_up() => {
                span title="start `weir up --chaos SEED` to inject faults and to turn them on and off here" { "Chaos off" }
            },
            None => {},
        }
    }
}
