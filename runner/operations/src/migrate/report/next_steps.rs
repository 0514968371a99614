//! The next commands for the operator that the migration's state allows.
//!
//! `control::verbs` decides which subcommands a phase allows. This module omits subcommands that
//! would fail in the current state, for example because of an old comparison, remaining tombstones,
//! or a stream that no function reads.

use control::{COMPARISON_SECONDS, State};
use rules::migration::Phase;
use rules::migration::plan::{Kind, Plan};

use crate::migrate::switch::inverse_check;
use client::output;

/// Subcommands that switch readers and writers between sources and targets.
const SWITCHES: [&str; 4] =
    ["cutover", "cutover --no-way-back", "revert", "revert --with-differences"];
/// Subcommands that start a comparison.
const COMPARISONS: [&str; 2] = ["verify", "verify --repair"];

/// The facts about a migration on which its next commands depend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MigrationFacts<'s> {
    pub(crate) name: &'s str,
    pub(crate) phase: Phase,
    pub(crate) plan: Option<&'s Plan>,
    /// True if the backfill is paused.
    pub(crate) is_paused: bool,
    /// True if tombstones or marks of the migration remain in a table.
    pub(crate) needs_cleaning: bool,
    /// True if the route is closed for writers.
    pub(crate) is_blocked: bool,
    /// True if the migration has ended, but functions still apply its changes.
    pub(crate) is_still_followed: bool,
    /// Number of differences of the last comparison.
    pub(crate) differences: u64,
    /// Number of differences that a repair cannot correct: items that cannot be transformed, and
    /// foreign items.
    pub(crate) refused: u64,
    /// Age in seconds of the proof that the next switch requires; `None` if the proof is recent
    /// enough. If the proof is too old, streams may have trimmed later records.
    pub(crate) stale_seconds: Option<i64>,
    /// True if a running comparison has open segments; a switch is refused until all segments are
    /// compared.
    pub(crate) is_compared: bool,
    /// True if the result of the last comparison was not recorded; a switch is then refused.
    pub(crate) is_not_noted: bool,
    /// True if the last comparison was started by the command that ends an in-place migration.
    /// The same command resumes the comparison.
    pub(crate) is_of_end: bool,
    /// True if no worker has taken a segment of the backfill.
    pub(crate) is_untaken: bool,
    /// True if a change has waited so long that probably no function reads the change's stream.
    pub(crate) is_unfollowed: bool,
    /// True if a change or a document cannot be applied until the operator corrects the item or the
    /// document. A switch is then refused.
    pub(crate) is_hopeless: bool,
    /// Number of differences of the last comparison after the cut-over.
    pub(crate) back_differences: u64,
    /// True if the plan no longer fits the tables.
    pub(crate) is_unfit: bool,
    /// True if the command that starts the migration was active so recently that it may still run.
    pub(crate) is_beginning: bool,
}

impl<'s> MigrationFacts<'s> {
    /// Returns the facts of a migration that has just entered a phase, without obstacles.
    pub(crate) fn new(name: &'s str, phase: Phase, plan: Option<&'s Plan>) -> Self {
        Self { name, phase, plan, ..Self::default() }
    }

    /// Returns the facts that are known from a state; `now` is the store's time.
    pub(crate) fn of(name: &'s str, state: &State, plan: Option<&'s Plan>, now: i64) -> Self {
        let verified = state.verified.unwrap_or_default();
        Self {
            is_paused: state.is_paused(),
            needs_cleaning: state.needs_cleaning,
            differences: verified.differences,
            refused: verified.refused,
            back_differences: state.back_differences.unwrap_or(0),
            stale_seconds: stale_seconds(state, plan, now),
            is_not_noted: state.comparing.is_some(),
            ..Self::new(name, state.phase, plan)
        }
    }

    /// Returns true if the switch or the end of the migration in its phase would be refused because
    /// the last proof is too old.
    pub(crate) fn is_stale(&self) -> bool {
        // For a purge, an old proof is no obstacle, because `complete` compares again.
        self.stale_seconds.is_some() && self.kind() != Some(Kind::Purge)
    }

    fn kind(&self) -> Option<Kind> {
        self.plan.map(|plan| plan.kind)
    }

    /// Returns true if an in-place migration may be ended. The command that ends the migration
    /// compares again.
    pub(crate) fn may_end_in_place(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::CutOver)
            && self.kind().is_some_and(Kind::is_in_place)
    }

    /// Returns true if the next switch would be refused because the result of the last comparison
    /// is unknown.
    pub(crate) fn lacks_comparison(&self) -> bool {
        self.is_not_noted
            && match self.phase {
                Phase::Ready => self.kind() != Some(Kind::Purge),
                Phase::CutOver => {
                    self.has_way_back() && !self.kind().is_some_and(Kind::is_in_place)
                }
                _ => false,
            }
    }

    /// Returns the next commands, each with the reason to run it.
    pub(crate) fn steps(&self) -> Vec<(String, &'static str)> {
        let mut steps = self.of_phase();
        if self.is_hopeless {
            self.note_hopeless(&mut steps);
        }
        if self.is_compared && matches!(self.phase, Phase::Tailing | Phase::Ready | Phase::CutOver)
        {
            // A switch is refused until the comparison is complete. Another comparison would only
            // delay it.
            self.leave_out(&mut steps, &SWITCHES);
            self.leave_out(&mut steps, &COMPARISONS);
            let why = "notify workers again of the running comparison, if it makes no progress";
            steps.insert(0, (self.verb("resume"), why));
        }
        if self.lacks_comparison() && !self.is_compared {
            self.leave_out(&mut steps, &SWITCHES);
            self.leave_out(&mut steps, &COMPARISONS);
            let why = "the last comparison did not finish; compare again";
            steps.insert(0, (self.verb("verify"), why));
        }
        if self.is_of_end && !self.is_hopeless {
            // `complete` also notifies workers of the comparison, so `resume` is not suggested.
            self.leave_out(&mut steps, &["complete", "resume"]);
            self.leave_out(&mut steps, &COMPARISONS);
            let why = "resume the last comparison, if no other command is running it";
            steps.insert(0, (self.verb("complete"), why));
        }
        if self.is_unfit {
            self.leave_out(&mut steps, &SWITCHES);
            self.leave_out(&mut steps, &COMPARISONS);
            if matches!(self.phase, Phase::Copying | Phase::Tailing | Phase::Ready) {
                self.leave_out(&mut steps, &["abort", "complete"]);
                let why = "abort, if the tables cannot be changed to fit the plan";
                steps.push((self.verb("abort"), why));
            }
        }
        if self.is_unfollowed {
            steps.insert(0, (self.verb("work"), "start workers that apply the waiting changes"));
        }
        steps
    }

    /// Replaces the steps that would fail because the change of an item cannot be applied.
    fn note_hopeless(&self, steps: &mut Vec<(String, &'static str)>) {
        let is_in_place = self.kind().is_some_and(Kind::is_in_place);
        match self.phase {
            Phase::Ready => self.leave_out(steps, &["complete"]),
            Phase::CutOver if is_in_place => {
                // `complete` is still possible, because it requires no comparison in this phase.
                let complete = self.verb("complete");
                for (_, why) in steps.iter_mut().filter(|(command, _)| *command == complete) {
                    *why = "end the migration, once the named item is corrected";
                }
                return;
            }
            Phase::CutOver if self.has_way_back() => {}
            _ => return,
        }
        self.leave_out(steps, &SWITCHES);
        self.leave_out(steps, &COMPARISONS);
        let why = "correct the named item, then compare again";
        steps.insert(0, (self.verb("verify"), why));
    }

    fn leave_out(&self, steps: &mut Vec<(String, &'static str)>, verbs: &[&str]) {
        steps.retain(|(command, _)| !verbs.iter().any(|verb| *command == self.verb(verb)));
    }

    /// Shows the next commands.
    pub(crate) fn show(&self) {
        let steps = self.steps();
        let steps: Vec<_> = steps.iter().map(|(command, why)| (command.as_str(), *why)).collect();
        output::next(&steps);
    }

    fn verb(&self, verb: &str) -> String {
        format!("weir migrate {verb} {}", self.name)
    }

    fn of_phase(&self) -> Vec<(String, &'static str)> {
        let step = |verb: &str, why| (self.verb(verb), why);
        match self.phase {
            Phase::Preparing | Phase::Copying if self.is_paused => {
                vec![step("resume", "resume the paused backfill")]
            }
            // Another `start` would replace the first `start` command, which may still be running.
            Phase::Preparing if self.is_beginning => {
                vec![step("wait", "another command started the migration less than a minute ago")]
            }
            // The path of the plan file is unknown, so the command has a placeholder.
            Phase::Preparing => vec![(
                "weir migrate start PLAN".to_owned(),
                "resume the start (PLAN is the plan file); the command that started the migration has been inactive for a minute",
            )],
            Phase::Copying if self.is_untaken => vec![
                step("work", "start workers on this machine, if no worker is running"),
                step("wait", "wait until every segment is read"),
            ],
            Phase::Copying => vec![step("wait", "wait until every segment is read")],
            Phase::Tailing if self.differences > 0 && self.differences == self.refused => vec![
                step("verify", "compare again, once the named items are corrected or deleted"),
                step("abort", "abort, and correct the plan"),
            ],
            Phase::Tailing if self.differences > 0 => vec![
                step("verify --repair", "repair the differences, and compare again"),
                step("abort", "abort, and correct the plan"),
            ],
            Phase::Tailing => vec![step("verify", "compare sources and targets")],
            Phase::Ready if self.is_stale() => {
                vec![step("verify", "the last comparison is too old; compare again")]
            }
            Phase::Ready => vec![self.end_of_ready()],
            // `cutover` is refused because of the old proof, but it unblocks writers.
            Phase::CuttingOver if self.is_stale() => vec![
                step("abort", "abort: the last comparison is too old"),
                (self.end_of_ready().0, "unblock writers on the sources, before a new comparison"),
            ],
            Phase::CuttingOver => vec![
                (self.end_of_ready().0, "resume the cut-over, unless it is still running"),
                step("abort", "abort the migration"),
            ],
            Phase::Turning => {
                vec![step("cutover", "resume the cut-over, unless it is still running")]
            }
            Phase::CutOver => self.of_cut_over(),
            Phase::Reverting | Phase::Returning => {
                vec![step("revert", "resume the revert, unless it is still running")]
            }
            Phase::Reverted | Phase::Aborted | Phase::Completing | Phase::Completed => {
                self.of_end()
            }
            Phase::None => Vec::new(),
        }
    }

    /// Returns the steps of a migration that has ended, or that `complete` is ending.
    fn of_end(&self) -> Vec<(String, &'static str)> {
        let step = |verb: &str, why| (self.verb(verb), why);
        match self.phase {
            Phase::Aborted if self.is_still_followed => {
                vec![step("abort", "finish the abort: functions still follow the migration")]
            }
            Phase::Reverted if self.is_still_followed => {
                vec![step("revert", "finish the revert: functions still follow the migration")]
            }
            Phase::Completed if self.is_still_followed => {
                vec![step("complete", "finish `complete`: functions still follow the migration")]
            }
            Phase::Reverted if self.needs_cleaning => vec![step(
                "revert",
                "remove tombstones and marks from the sources, unless another command is removing them",
            )],
            Phase::Aborted if self.is_blocked => {
                vec![step("abort", "unblock writers: the abort did not finish")]
            }
            Phase::Aborted if self.needs_cleaning => {
                vec![step(
                    "work",
                    "remove the last marks from the sources, unless a worker is running",
                )]
            }
            Phase::Completing => {
                vec![step("complete", "resume `complete`, unless it is still running")]
            }
            _ => Vec::new(),
        }
    }

    fn end_of_ready(&self) -> (String, &'static str) {
        match self.kind() {
            Some(Kind::Purge) => (self.verb("complete"), "end the purge and write its receipt"),
            Some(Kind::Restructure | Kind::Split) if !self.has_way_back() => {
                (self.verb("cutover --no-way-back"), "switch readers and writers permanently")
            }
            _ => (self.verb("cutover"), "switch readers and writers"),
        }
    }

    fn of_cut_over(&self) -> Vec<(String, &'static str)> {
        if !self.has_way_back() {
            return vec![(self.verb("complete"), "end the migration; it cannot be reverted")];
        }
        let step = |verb: &str, why| (self.verb(verb), why);
        let repair =
            step("verify --repair", "repair items that were not copied back, and compare again");
        let mut steps = match (self.is_stale(), self.back_differences > 0) {
            (true, true) => vec![repair],
            (false, true) => {
                let why =
                    "switch back and lose the differences, if the targets can no longer be used";
                vec![repair, step("revert --with-differences", why)]
            }
            (true, false) => {
                vec![step("verify", "compare the items copied back; a revert requires it")]
            }
            (false, false) => vec![step("revert", "switch readers and writers back")],
        };
        steps.push(step("complete", "end the migration; no revert is possible after this"));
        steps
    }

    fn has_way_back(&self) -> bool {
        self.plan.is_none_or(|plan| !plan.inverse.is_empty())
    }
}

/// Returns the age in seconds of the proof that the next switch requires; `None` if the proof is
/// recent enough.
fn stale_seconds(state: &State, plan: Option<&Plan>, now: i64) -> Option<i64> {
    let age = match state.phase {
        Phase::Tailing | Phase::Ready | Phase::CuttingOver if state.verified.is_some() => {
            state.comparison_age(now)
        }
        Phase::CutOver if plan.is_some_and(inverse_check::has_one) => {
            inverse_check::age(state, now)
        }
        _ => return None,
    };
    (age > COMPARISON_SECONDS).then_some(age)
}

#[cfg(test)]
pub(crate) mod tests {
    use rules::migration::plan::{Backfill, FUNCTION_SECONDS, Source};

    use super::*;
    use control::verbs::{Verb, VerbDecision, decide_verb};

    /// Returns a plan with only the properties on which the next commands depend.
    pub(crate) fn plan(kind: Kind, has_way_back: bool) -> Plan {
        let source =
            Source { table: "pets".into(), items: Vec::new(), split: None, archive: false };
        Plan {
            migration: "shop".into(),
            kind,
            from: Vec::new(),
            inverse: has_way_back.then_some(source).into_iter().collect(),
            backfill: Backfill::Scan,
            segments: 1,
            gate_seconds: 0,
            settle_seconds: 0,
            function_seconds: FUNCTION_SECONDS,
            route: None,
        }
    }

    fn commands(standing: &MigrationFacts<'_>) -> Vec<String> {
        standing.steps().into_iter().map(|(command, _)| command).collect()
    }

    #[test]
    fn a_migration_without_workers_is_advised_to_start_them() {
        let ready = MigrationFacts::new("shop", Phase::Ready, None);
        assert_eq!(commands(&ready), ["weir migrate cutover shop"]);
        let unfollowed = MigrationFacts { is_unfollowed: true, ..ready };
        let expected = ["weir migrate work shop", "weir migrate cutover shop"];
        assert_eq!(commands(&unfollowed), expected);
        let compared = MigrationFacts { is_compared: true, ..ready };
        assert_eq!(commands(&compared), ["weir migrate resume shop"]);
        let hopeless = MigrationFacts { is_hopeless: true, ..ready };
        assert_eq!(commands(&hopeless), ["weir migrate verify shop"]);
    }

    #[test]
    fn obstacles_of_a_switch_come_before_it() {
        let (split, in_place) = (plan(Kind::Split, true), plan(Kind::InPlace, true));
        let purge = plan(Kind::Purge, false);
        let of = |phase, plan| MigrationFacts::new("shop", phase, Some(plan));
        let hopeless = |standing| commands(&MigrationFacts { is_hopeless: true, ..standing });
        let cut_over = of(Phase::CutOver, &split);
        let expected = ["weir migrate verify shop", "weir migrate complete shop"];
        assert_eq!(hopeless(cut_over), expected);
        let differs = MigrationFacts { back_differences: 2, ..cut_over };
        let expected = ["verify --repair", "revert --with-differences", "complete"];
        assert_eq!(commands(&differs), expected.map(|verb| format!("weir migrate {verb} shop")));
        let expected = ["verify --repair", "complete"];
        let stale = MigrationFacts { stale_seconds: Some(90_000), ..differs };
        assert_eq!(commands(&stale), expected.map(|verb| format!("weir migrate {verb} shop")));
        assert_eq!(hopeless(of(Phase::Ready, &purge)), ["weir migrate verify shop"]);
        let expected = ["weir migrate revert shop", "weir migrate complete shop"];
        assert_eq!(hopeless(of(Phase::CutOver, &in_place)), expected);
        let unfit = MigrationFacts { is_unfit: true, ..of(Phase::Ready, &split) };
        assert_eq!(commands(&unfit), ["weir migrate abort shop"]);
        // An unfinished comparison of the command that ends a migration does not block this
        // command, which resumes the comparison. Other obstacles still block it.
        let ended = |standing| MigrationFacts { is_of_end: true, is_not_noted: true, ..standing };
        let left = ended(of(Phase::Ready, &in_place));
        let complete = ["weir migrate complete shop"];
        assert_eq!(commands(&left), complete);
        assert_eq!(commands(&MigrationFacts { is_compared: true, ..left }), complete);
        assert_eq!(commands(&ended(of(Phase::Ready, &purge))), complete);
        let is_late = Some(COMPARISON_SECONDS + 1);
        assert_eq!(commands(&MigrationFacts { stale_seconds: is_late, ..left }), complete);
        assert_eq!(hopeless(left), ["weir migrate verify shop"]);
        let expected = ["weir migrate complete shop", "weir migrate revert shop"];
        assert_eq!(commands(&ended(of(Phase::CutOver, &in_place))), expected);
        // While a comparison runs, no other comparison is suggested.
        let tailing = MigrationFacts { is_compared: true, ..of(Phase::Tailing, &split) };
        assert_eq!(commands(&tailing), ["weir migrate resume shop"]);
        let preparing = of(Phase::Preparing, &split);
        assert_eq!(commands(&preparing), ["weir migrate start PLAN"]);
        let beginning = MigrationFacts { is_beginning: true, ..preparing };
        assert_eq!(commands(&beginning), ["weir migrate wait shop"]);
    }

    #[test]
    fn blocked_writers_are_released() {
        let for_good = plan(Kind::Restructure, false);
        let cutting_over = MigrationFacts::new("shop", Phase::CuttingOver, Some(&for_good));
        let expected = ["weir migrate cutover --no-way-back shop", "weir migrate abort shop"];
        assert_eq!(commands(&cutting_over), expected);
        let old = MigrationFacts { stale_seconds: Some(COMPARISON_SECONDS + 1), ..cutting_over };
        assert_eq!(commands(&old)[0], "weir migrate abort shop");
        let aborted = MigrationFacts::new("shop", Phase::Aborted, Some(&for_good));
        assert!(commands(&aborted).is_empty());
        let half_way = MigrationFacts { is_blocked: true, needs_cleaning: true, ..aborted };
        assert_eq!(commands(&half_way), ["weir migrate abort shop"]);
    }

    /// Returns the subcommand of a command; `None` if every phase allows the subcommand.
    fn verb_of(command: &str) -> Option<Verb> {
        Some(match command.split(' ').nth(2)? {
            "start" => Verb::Start,
            "resume" => Verb::Resume,
            "verify" => Verb::Verify,
            "cutover" => Verb::Cutover,
            "revert" => Verb::Revert,
            "complete" => Verb::Complete,
            "abort" => Verb::Abort,
            "wait" | "work" => return None,
            other => panic!("{other}"),
        })
    }

    #[test]
    fn offered_steps_are_not_refused() {
        let plans = [
            plan(Kind::Restructure, true),
            plan(Kind::Restructure, false),
            plan(Kind::Split, true),
            plan(Kind::InPlace, true),
            plan(Kind::InPlace, false),
            plan(Kind::Purge, false),
        ];
        for plan in &plans {
            let kind = plan.kind;
            // A purge has no cut-over, so some phases do not occur.
            let is_there = |phase: &Phase| {
                kind != Kind::Purge || !(Phase::CuttingOver..=Phase::Reverted).contains(phase)
            };
            for phase in Phase::ALL.into_iter().filter(is_there) {
                let plain = MigrationFacts::new("shop", phase, Some(plan));
                let age = Some(COMPARISON_SECONDS + 1);
                let may_be_stale = phase != Phase::CutOver || inverse_check::has_one(plan);
                let is_of_end = plain.may_end_in_place();
                let others = [
                    MigrationFacts { is_paused: true, ..plain },
                    MigrationFacts { needs_cleaning: true, ..plain },
                    MigrationFacts { is_still_followed: true, ..plain },
                    MigrationFacts { differences: 2, ..plain },
                    MigrationFacts { is_compared: true, ..plain },
                    MigrationFacts { is_compared: true, differences: 2, ..plain },
                    MigrationFacts { is_compared: true, is_not_noted: true, is_of_end, ..plain },
                    MigrationFacts { is_not_noted: true, is_of_end, ..plain },
                    MigrationFacts { is_beginning: true, ..plain },
                    MigrationFacts { is_unfit: true, ..plain },
                    // If no revert is possible, no change is copied back.
                    MigrationFacts { back_differences: 2 * u64::from(may_be_stale), ..plain },
                    MigrationFacts { stale_seconds: age.filter(|_| may_be_stale), ..plain },
                ];
                for command in others.iter().chain([&plain]).flat_map(commands) {
                    let Some(verb) = verb_of(&command) else { continue };
                    let answer = decide_verb("shop", kind, verb, phase);
                    assert!(!matches!(answer, VerbDecision::Refused(_)), "{phase:?}: {command}");
                }
            }
        }
    }
}
