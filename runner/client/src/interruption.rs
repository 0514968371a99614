//! Handles Ctrl-C and SIGTERM, in the same way for all commands.
//!
//! On a signal, a long command prints its progress and how to resume it, and exits with the code
//! that shells expect. Its completed work is not undone, so the command can be run again. `NATURES`
//! has an entry for every command; a test compares this list with the command line.

use std::sync::atomic::{AtomicU8, Ordering};

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use locks::Mutex;
use tokio::sync::oneshot;

use crate::exit::{Exit, Signal};
use crate::failure::Result;
use crate::output::say;

/// Time limit for a command to end after the signal. After the limit the process exits, because
/// work that never yields cannot be stopped.
const ENDING_MAX: Duration = Duration::from_secs(5);

/// Exit code of the first signal; 0 before the first signal.
static RECEIVED: AtomicU8 = AtomicU8::new(0);

/// Waits for Ctrl-C or SIGTERM.
pub async fn requested() -> Signal {
    use tokio::signal::unix::{SignalKind, signal};
    let of = async |kind: SignalKind, meant: Signal| {
        match signal(kind) {
            Ok(mut listener) => {
                listener.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
        meant
    };
    let signal = tokio::select! {
        signal = of(SignalKind::interrupt(), Signal::Interrupt) => signal,
        signal = of(SignalKind::terminate(), Signal::Terminate) => signal,
    };
    let _ = RECEIVED.compare_exchange(0, signal.exit_code(), Ordering::SeqCst, Ordering::SeqCst);
    signal
}

/// Returns the signal that the process has received, if any.
fn received() -> Option<Signal> {
    let code = RECEIVED.load(Ordering::SeqCst);
    [Signal::Interrupt, Signal::Terminate].into_iter().find(|signal| signal.exit_code() == code)
}

/// The progress of a command.
enum ShownProgress {
    Text(String),
    Bar(ProgressBar, &'static str),
}

static REACHED: Mutex<Option<ShownProgress>> = Mutex::new(None);

fn set_reached(reached: ShownProgress) {
    *REACHED.lock() = Some(reached);
}

/// Sets the progress text that is shown if a signal arrives.
pub fn reached(text: String) {
    set_reached(ShownProgress::Text(text));
}

/// Returns a progress bar; without a length, a spinner. If a signal arrives, the text that is shown
/// is the bar's message, and its position if `unit` is not empty.
pub fn progress_bar(length: Option<u64>, template: &str, unit: &'static str) -> ProgressBar {
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    set_reached(ShownProgress::Bar(bar.clone(), unit));
    bar
}

fn text_of(reached: &ShownProgress) -> String {
    match reached {
        ShownProgress::Text(text) => text.clone(),
        ShownProgress::Bar(bar, unit) => {
            let (message, position) = (bar.message(), bar.position());
            let position = match bar.length() {
                _ if unit.is_empty() => return message,
                Some(length) => format!("{position} of {length} {unit}"),
                None => format!("{position} {unit}"),
            };
            if message.is_empty() { position } else { format!("{message}: {position}") }
        }
    }
}

/// The reaction of a command to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalReaction {
    /// The command ends within seconds, or only reads.
    Short,
    /// The command runs until it is interrupted.
    UntilInterrupted,
    /// The command shuts down gracefully, and reports the remaining work.
    OrderlyShutdown,
    /// The command takes long. The text says how to resume it.
    Long(&'static str),
}

use SignalReaction::{Long, OrderlyShutdown, Short, UntilInterrupted};

/// The reaction of every command; the key is the command's words on the command line.
pub const NATURES: &[(&str, SignalReaction)] = &[
    ("demo", Long("run `weir demo` again: it starts from the beginning")),
    ("init archive", Short),
    ("init counters", Short),
    ("init versions", Short),
    ("init fan-out", Short),
    ("init migration", Short),
    ("init function", Short),
    ("up", OrderlyShutdown),
    ("check", Short),
    ("model check", UntilInterrupted),
    ("model template", Short),
    ("model export", Short),
    ("load", Long("run the same command again: puts are repeated, and counted lines are skipped")),
    ("copy", Long("run the same command again: it copies and compares all items again")),
    ("streams ls", Short),
    ("streams shards", Short),
    ("streams tail", UntilInterrupted),
    ("streams explain", Short),
    (
        "streams redrive",
        Long(
            "run the same command again: records that the function has processed already have no further effect",
        ),
    ),
    ("clock show", Short),
    ("clock freeze", Short),
    ("clock advance", Short),
    ("clock resume", Short),
    ("ttl sweep", Long("run the same command again to delete the remaining expired items")),
    ("partitions show", Short),
    ("partitions hot", Short),
    ("partitions split", Short),
    ("invoke", Short),
    ("logs", UntilInterrupted),
    ("status", Short),
    ("console", UntilInterrupted),
    ("mcp", UntilInterrupted),
    ("archive ls", Short),
    ("archive get", Short),
    ("archive ddl", Short),
    ("archive check", Long("nothing was changed; run the same command again")),
    ("archive restore", Long("run the same command again: restored items are skipped")),
    (
        "archive compact",
        Long(
            "the function finishes the part of the archive that it is compacting; run the same command again to compact the remaining parts",
        ),
    ),
    (
        "archive erase",
        Long(
            "the function finishes the part of the archive that it is erasing from, and stores the receipts of finished parts; run the same command again for the remaining parts",
        ),
    ),
    ("counters read", Short),
    ("counters fold", Long("run the same command again to fold the remaining slots")),
    ("counters vote", Short),
    (
        "counters recount",
        Long("each repair is complete or not applied; run the same command again"),
    ),
    (
        "counters generate",
        Long(
            "the votes already cast stay counted, and another run without --ballots adds to them; use --prefix to count into separate counters",
        ),
    ),
    ("versions ls", Short),
    ("versions get", Short),
    ("versions diff", Short),
    ("versions restore", Short),
    ("versions backfill", Long("run the same command again: existing histories are unchanged")),
    ("versions check", Long("nothing was changed; run the same command again")),
    ("migrate plan", Long("nothing was changed; run the same command again")),
    ("migrate start", OrderlyShutdown),
    ("migrate work", OrderlyShutdown),
    ("migrate status", Short),
    ("migrate watch", UntilInterrupted),
    ("migrate wait", Long("nothing was changed; run the same command again to keep waiting")),
    ("migrate pause", Short),
    ("migrate resume", Short),
    ("migrate throttle", Short),
    (
        "migrate verify",
        Long(
            "the workers finish the comparison, and `weir migrate status` shows its progress; run the same command again for its result",
        ),
    ),
    ("migrate cutover", OrderlyShutdown),
    ("migrate revert", OrderlyShutdown),
    (
        "migrate complete",
        Long(
            "the workers continue, and `weir migrate status` shows their progress; run the same command again to finish",
        ),
    ),
    ("migrate abort", Long("run the same command again: it resumes where it stopped")),
    ("migrate document", Short),
    ("migrate list", Short),
    ("migrate journal", Short),
    ("editions ls", Short),
    (
        "editions prepare",
        Long(
            "the edition stays `preparing` and is never published; run the same command again to prepare a new edition, and `weir editions prune` to remove this edition",
        ),
    ),
    ("editions check", Long("nothing was changed; run the same command again")),
    ("editions publish", Short),
    ("editions rollback", Short),
    ("editions get", Short),
    ("editions dump", Short),
    ("editions prune", Long("run the same command again to remove the remaining editions")),
    ("fan-out check", Short),
    ("fan-out jobs", Short),
    ("fan-out status", Short),
    ("fan-out prune", Long("run the same command again to remove the remaining copies")),
    ("fan-out repair", Long("run the same command again: correct copies are unchanged")),
    ("doctor", Short),
    ("completions", Short),
];

/// Returns the reaction of a command to a signal. A test checks that the list has every command.
pub fn signal_reaction(verb: &str) -> SignalReaction {
    NATURES.iter().find(|(words, _)| *words == verb).map_or(Short, |(_, nature)| *nature)
}

/// Returns the message for a command that a signal has ended; `None` if the command needs no
/// message.
fn farewell(
    signal: Signal,
    nature: SignalReaction,
    reached: Option<&ShownProgress>,
) -> Option<String> {
    let resume = match nature {
        UntilInterrupted | OrderlyShutdown => return None,
        Short => None,
        Long(resume) => Some(resume),
    };
    let reached = reached.map(text_of).filter(|text| !text.is_empty());
    let head = match reached {
        Some(reached) => format!("{}: {reached}", signal.name()),
        None => signal.name().to_owned(),
    };
    Some(resume.map_or(head.clone(), |resume| format!("{head}; {resume}")))
}

/// Runs a command until it ends or a signal arrives. A command with an orderly shutdown handles the
/// signal itself.
///
/// # Errors
/// The failure of the command.
pub async fn or_end(
    nature: SignalReaction,
    work: impl Future<Output = Result<Exit>>,
) -> Result<Exit> {
    if nature == OrderlyShutdown {
        return match (work.await, received()) {
            (Err(problem), Some(signal)) if problem.exit() == Exit::Failed => {
                say(&format!("error: {problem}"));
                Ok(Exit::Interrupted(signal))
            }
            (ended, _) => ended,
        };
    }
    let (tell, told) = oneshot::channel();
    let watch = tokio::spawn(async move {
        let signal = requested().await;
        let text = {
            let reached = REACHED.lock();
            farewell(signal, nature, reached.as_ref())
        };
        if let Some(text) = text {
            say(&text);
        }
        let _ = tell.send(signal);
        tokio::select! {
            () = tokio::time::sleep(ENDING_MAX) => {}
            _ = requested() => {}
        }
        std::process::exit(i32::from(signal.exit_code()));
    });
    tokio::select! {
        ended = work => {
            watch.abort();
            ended
        }
        Ok(signal) = told => Ok(Exit::Interrupted(signal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_a_long_verb_with_how_far_it_got_and_how_to_resume() {
        let bar = ProgressBar::hidden();
        bar.set_length(9);
        let message = ShownProgress::Bar(bar.clone(), "");
        let position = ShownProgress::Bar(bar.clone(), "items");
        bar.inc(4);
        assert_eq!(text_of(&position), "4 of 9 items");
        bar.set_message("7 slots folded");
        assert_eq!(text_of(&position), "7 slots folded: 4 of 9 items");
        let of = |nature, reached| farewell(Signal::Interrupt, nature, reached);
        let long = Long("run it again");
        assert_eq!(
            of(long, Some(&message)).as_deref(),
            Some("interrupted: 7 slots folded; run it again")
        );
        assert_eq!(of(long, None).as_deref(), Some("interrupted; run it again"));
        assert_eq!(of(Short, None).as_deref(), Some("interrupted"));
        assert_eq!(of(UntilInterrupted, Some(&message)), None);
        let terminated = farewell(Signal::Terminate, long, None);
        assert_eq!(terminated.as_deref(), Some("terminated; run it again"));
    }
}
