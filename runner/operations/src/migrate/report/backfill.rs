//! Reads the progress of a migration's backfill. The first command that finds that all segments are
//! read moves the migration to the phase `tailing`.

use control::{BACKFILL_RUN, Expect, Move, State};
use rules::migration::Phase;

use crate::migrate::context::Context;
use crate::migrate::control_table::Guard;
use crate::migrate::failure::Result;
use crate::migrate::report::progress::Progress;
use crate::migrate::switch::clear_touches;

/// Returns the backfill's progress, and the state that [`advance`] would write. Writes nothing.
pub(crate) async fn look(context: &Context, name: &str) -> Result<(State, Progress)> {
    let mut state = context.state(name).await?;
    let progress = Progress::of(&context.tasks_of(name, BACKFILL_RUN).await?);
    if state.phase == Phase::Copying && progress.is_copied_to_the_end() {
        state.phase = Phase::Tailing;
    }
    Ok((state, progress))
}

/// Returns true if [`advance`] would change the state.
pub(crate) async fn is_due(context: &Context, name: &str) -> Result<bool> {
    let state = context.state(name).await?;
    Ok(match state.phase {
        Phase::Copying => look(context, name).await?.0.phase != Phase::Copying,
        Phase::Aborted => state.needs_cleaning,
        _ => false,
    })
}

/// Returns the backfill's progress, and moves the migration to the phase `tailing` if all segments
/// are read.
pub(crate) async fn advance(context: &Context, name: &str) -> Result<(State, Progress)> {
    let state = context.state(name).await?;
    let tasks = context.tasks_of(name, BACKFILL_RUN).await?;
    let progress = Progress::of(&tasks);
    if state.phase == Phase::Copying && progress.is_copied_to_the_end() {
        let at = context.now().await;
        return match context.make(name, Guard::default(), &Move::Tail { at }).await {
            Ok(state) => Ok((state, progress)),
            // Another command may have moved the migration at the same time.
            Err(failure) => match context.state(name).await? {
                state if state.phase == Phase::Copying => Err(failure),
                state => Ok((state, progress)),
            },
        };
    }
    if state.phase == Phase::Aborted
        && state.needs_cleaning
        && !clear_touches::begin_clearing(context, &tasks).await?
        && progress.is_done()
    {
        let expect = Expect::phases(&[Phase::Aborted]);
        let swept = |state: &mut State| std::mem::take(&mut state.needs_cleaning);
        return Ok((context.control.change_state(name, expect, swept).await?, progress));
    }
    Ok((state, progress))
}
