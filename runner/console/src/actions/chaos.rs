//! Turns fault injection of the running `weir up` on and off.

use super::Done;
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;

/// Turns fault injection on or off.
///
/// # Errors
/// The field `to` is wrong, or `weir up` was started without `--chaos`.
pub(crate) fn switch(context: &Context, fields: &Query) -> Result<Done, PageError> {
    let on = match fields.get("to") {
        Some("on") => true,
        Some("off") => false,
        _ => return Err(PageError::bad_input("to", "the value must be on or off", "on or off")),
    };
    let Some(chaos) = context.chaos() else {
        let why = "this `weir up` injects no faults: start it with --chaos SEED".to_owned();
        return Err(PageError::Refused(why));
    };
    chaos.switch(on);
    let word = if on { "on" } else { "off" };
    Ok(Done {
        said: format!(
            "chaos is {word}; {} faults were injected since `weir up` started",
            chaos.faults()
        ),
    })
}
