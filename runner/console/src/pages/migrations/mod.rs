//! Migrations: all migrations of the store, with the phase of each.

mod html;
mod view;

use operations::migrate::api;

pub(crate) use self::html::html;
use self::view::{Listed, View};
use crate::context::Context;
use crate::error::PageError;

/// The maximum number of migrations that the page shows.
const SHOWN_MAX: usize = 100;

/// Collects the data of the page Migrations. Scanning the control table is cheap: it has a few
/// hundred entries for each migration, and no user data.
///
/// # Errors
/// The store does not answer.
pub(crate) async fn view(context: &Context) -> Result<View, PageError> {
    let mut states = api::states(&context.migrate()).await?;
    states.sort_by_key(|state| (state.phase.has_ended(), std::cmp::Reverse(state.since)));
    let left_out = states.len().saturating_sub(SHOWN_MAX);
    let migrations = states.iter().take(SHOWN_MAX).map(|state| Listed {
        name: state.migration.clone(),
        phase: state.phase.as_str(),
        paused: state.is_paused(),
        ended: state.phase.has_ended(),
        writers_blocked: state.held_at.is_some(),
        begun: Some(state.since).filter(|since| *since > 0),
        differences: state.verified.map(|verified| verified.differences),
    });
    Ok(View {
        schema: "weir.console.migrations/v1",
        control_table: context.control_table(),
        migrations: migrations.collect(),
        left_out,
    })
}
