//! What a person may say next: commands that work where the migration stands now, as they are.
//!
//! Nothing is read or written here. Which verbs are taken in a phase, `verbs` knows; what else is in
//! their way is known from the state: a comparison that is too old, tombstones that still stand, a
//! stream that nobody follows.

use control::{COMPARISON_SECONDS, State};
use rules::migration::Phase;
use rules::migration::plan::{Kind, Plan};

use super::way_back;
use client::output;

/// Verbs that move readers and writers.
const SWITCHES: [&str; 4] =
    ["cutover", "cutover --no-way-back", "revert", "revert --with-differences"];
/// Verbs that begin a comparison.
const COMPARISONS: [&str; 2] = ["verify", "verify --repair"];

/// Where a migration stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing<'s> {
    pub(super) name: &'s str,
    pub(super) phase: Phase,
    pub(super) plan: Option<&'s Plan>,
    /// Its backfill is paused.
    pub(super) is_paused: bool,
    /// Tombstones or marks are left to remove.
    pub(super) is_unswept: bool,
    /// Its route is closed for writers.
    pub(super) is_held_up: bool,
    /// It has ended, and functions go on with it.
    pub(super) is_still_followed: bool,
    /// The last comparison found so many differences.
    pub(super) differences: u64,
    /// Of these, those of items that cannot be transformed, which no repair helps.
    pub(super) refused: u64,
    /// For so many seconds nothing has proved what the next switch rests on, which is too long: streams
    /// may have forgotten what came before.
    pub(super) stale_seconds: Option<i64>,
    /// A comparison has segments to go, and a switch waits for it.
    pub(super) is_compared: bool,
    /// A comparison was begun, and nobody has noted what it found, so a switch is refused.
    pub(super) is_not_noted: bool,
    /// That comparison is one of an end in place, which goes on with it when it is said again.
    pub(super) is_of_end: bool,
    /// A change waits that perhaps nobody applies.
    pub(super) is_unfollowed: bool,
    /// A change or a document waits that nobody ever can apply as it is, so a switch is refused.
    pub(super) is_hopeless: bool,
    /// The last comparison on the way back found so many differences.
    pub(super) back_differences: u64,
    /// The plan does not fit the tables as they are.
    pub(super) is_unfit: bool,
    /// Whoever begins it was heard of so lately that they are perhaps still at it.
    pub(super) is_beginning: bool,
}

impl<'s> Standing<'s> {
    /// A migration that has just come to a phase, with nothing in its way.
    pub(super) fn new(name: &'s str, phase: Phase, plan: Option<&'s Plan>) -> Self {
        Self {
            name,
            phase,
            plan,
            is_paused: false,
            is_unswept: false,
            is_held_up: false,
            is_still_followed: false,
            differences: 0,
            refused: 0,
            stale_seconds: None,
            is_compared: false,
            is_not_noted: false,
            is_of_end: false,
            is_unfollowed: false,
            is_hopeless: false,
            back_differences: 0,
            is_unfit: false,
            is_beginning: false,
        }
    }

    /// As a state says it, in the store's time.
    pub(super) fn of(name: &'s str, state: &State, plan: Option<&'s Plan>, now: i64) -> Self {
        let verified = state.verified.unwrap_or_default();
        Self {
            is_paused: state.is_paused(),
            is_unswept: state.unswept,
            differences: verified.differences,
            refused: verified.refused,
            back_differences: state.back_differences.unwrap_or(0),
            stale_seconds: stale_seconds(state, plan, now),
            is_not_noted: state.comparing.is_some(),
            ..Self::new(name, state.phase, plan)
        }
    }

    /// Whether a switch or an end that is meant for this phase would be refused.
    pub(super) fn is_stale(&self) -> bool {
        // The end of a purge compares by itself where the last comparison is older than that.
        self.stale_seconds.is_some() && self.kind() != Some(Kind::Purge)
    }

    fn kind(&self) -> Option<Kind> {
        self.plan.map(|plan| plan.kind)
    }

    /// Whether an end in place may be said, which makes a comparison of its own.
    pub(super) fn may_end_in_place(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::CutOver)
            && self.kind().is_some_and(Kind::is_in_place)
    }

    /// Whether the next switch would be refused, because nobody knows what the last comparison found.
    pub(super) fn lacks_comparison(&self) -> bool {
        self.is_not_noted
            && match self.phase {
                Phase::Ready => self.kind() != Some(Kind::Purge),
                Phase::CutOver => {
                    self.has_way_back() && !self.kind().is_some_and(Kind::is_in_place)
                }
                _ => false,
            }
    }

    /// The commands, and why.
    pub(super) fn steps(&self) -> Vec<(String, &'static str)> {
        let mut steps = self.of_phase();
        if self.is_hopeless {
            self.note_hopeless(&mut steps);
        }
        if self.is_compared && matches!(self.phase, Phase::Tailing | Phase::Ready | Phase::CutOver)
        {
            // A switch is refused until it is done, and one more comparison only takes its time.
            self.leave_out(&mut steps, &SWITCHES);
            self.leave_out(&mut steps, &COMPARISONS);
            let why = "tell workers of the comparison that is at work again, if it stands still";
            steps.insert(0, (self.verb("resume"), why));
        }
        if self.lacks_comparison() && !self.is_compared {
            self.leave_out(&mut steps, &SWITCHES);
            self.leave_out(&mut steps, &COMPARISONS);
            let why = "the last comparison was not brought to its end, compare again";
            steps.insert(0, (self.verb("verify"), why));
        }
        if self.is_of_end && !self.is_hopeless {
            // It tells workers of that comparison as well, and needs no other.
            self.leave_out(&mut steps, &["complete", "resume"]);
            self.leave_out(&mut steps, &COMPARISONS);
            let why = "go on with the comparison that it began, if nobody else does";
            steps.insert(0, (self.verb("complete"), why));
        }
        if self.is_unfit {
            self.leave_out(&mut steps, &SWITCHES);
            self.leave_out(&mut steps, &COMPARISONS);
            if matches!(self.phase, Phase::Copying | Phase::Tailing | Phase::Ready) {
                self.leave_out(&mut steps, &["abort", "complete"]);
                let why = "give it up, if the tables cannot be as the plan wants them";
                steps.push((self.verb("abort"), why));
            }
        }
        if self.is_unfollowed {
            steps.insert(0, (self.verb("work"), "apply what waits in the streams"));
        }
        steps
    }

    /// What is refused because of an item that is in the way gives way to what is not.
    fn note_hopeless(&self, steps: &mut Vec<(String, &'static str)>) {
        let is_in_place = self.kind().is_some_and(Kind::is_in_place);
        match self.phase {
            Phase::Ready => self.leave_out(steps, &["complete"]),
            Phase::CutOver if is_in_place => {
                // There is nothing to compare any more.
                let complete = self.verb("complete");
                for (_, why) in steps.iter_mut().filter(|(command, _)| *command == complete) {
                    *why = "end it, once the item that is named is corrected";
                }
                return;
            }
            Phase::CutOver if self.has_way_back() => {}
            _ => return,
        }
        self.leave_out(steps, &SWITCHES);
        self.leave_out(steps, &COMPARISONS);
        let why = "correct the item that is named first, then compare again";
        steps.insert(0, (self.verb("verify"), why));
    }

    fn leave_out(&self, steps: &mut Vec<(String, &'static str)>, verbs: &[&str]) {
        steps.retain(|(command, _)| !verbs.iter().any(|verb| *command == self.verb(verb)));
    }

    /// Says them.
    pub(super) fn show(&self) {
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
                vec![step("resume", "it is paused")]
            }
            // Who takes it over from somebody who is still at it ends their beginning.
            Phase::Preparing if self.is_beginning => {
                vec![step("wait", "somebody begins it, and was heard of in the last minute")]
            }
            // The plan's file is wherever whoever began it has it.
            Phase::Preparing => vec![(
                "weir migrate start PLAN".to_owned(),
                "go on with it, PLAN is its file; whoever began it was not heard of for a minute",
            )],
            Phase::Copying => vec![step("wait", "until every segment is read")],
            Phase::Tailing if self.differences > 0 && self.differences == self.refused => vec![
                step("verify", "compare again, when what is refused is corrected or deleted"),
                step("abort", "give it up, and correct the plan"),
            ],
            Phase::Tailing if self.differences > 0 => vec![
                step("verify --repair", "repair what differs, and compare again"),
                step("abort", "give it up, and correct the plan"),
            ],
            Phase::Tailing => vec![step("verify", "compare sources and targets")],
            Phase::Ready if self.is_stale() => {
                vec![step("verify", "the last comparison is too old, compare again")]
            }
            Phase::Ready => vec![self.end_of_ready()],
            // It is refused, and lets writers go on.
            Phase::CuttingOver if self.is_stale() => vec![
                step("abort", "give it up, the last comparison is too old"),
                (self.end_of_ready().0, "let writers go on as before, to compare again"),
            ],
            Phase::CuttingOver => {
                vec![
                    (self.end_of_ready().0, "go on, if nobody else does"),
                    step("abort", "give it up"),
                ]
            }
            Phase::Turning => vec![step("cutover", "go on, if nobody else does")],
            Phase::CutOver => self.of_cut_over(),
            Phase::Reverting | Phase::Returning => {
                vec![step("revert", "go on, if nobody else does")]
            }
            Phase::Aborted if self.is_still_followed => {
                vec![step("abort", "end it: changes are still followed")]
            }
            Phase::Reverted if self.is_still_followed => {
                vec![step("revert", "end it: changes are still followed")]
            }
            Phase::Completed if self.is_still_followed => {
                vec![step("complete", "end it: changes are still followed")]
            }
            Phase::Reverted if self.is_unswept => vec![step(
                "revert",
                "take tombstones and marks off the sources, if nobody else does",
            )],
            Phase::Aborted if self.is_held_up => {
                vec![step("abort", "let writers go on, whoever gave it up did not come to that")]
            }
            Phase::Aborted if self.is_unswept => {
                vec![step("work", "take the last marks off the sources, if nobody else does")]
            }
            Phase::Completing => vec![step("complete", "go on, if nobody else does")],
            Phase::None | Phase::Reverted | Phase::Completed | Phase::Aborted => Vec::new(),
        }
    }

    fn end_of_ready(&self) -> (String, &'static str) {
        match self.kind() {
            Some(Kind::Purge) => (self.verb("complete"), "end with a receipt"),
            Some(Kind::Restructure | Kind::Split) if !self.has_way_back() => {
                (self.verb("cutover --no-way-back"), "switch readers and writers, for good")
            }
            _ => (self.verb("cutover"), "switch readers and writers"),
        }
    }

    fn of_cut_over(&self) -> Vec<(String, &'static str)> {
        if !self.has_way_back() {
            return vec![(self.verb("complete"), "end it; there is no way back")];
        }
        let step = |verb: &str, why| (self.verb(verb), why);
        let repair = step("verify --repair", "repair what came back otherwise, and compare again");
        let mut steps = match (self.is_stale(), self.back_differences > 0) {
            (true, true) => vec![repair],
            (false, true) => {
                let why =
                    "switch back without what differs, if the targets cannot be used any longer";
                vec![repair, step("revert --with-differences", why)]
            }
            (true, false) => vec![step("verify", "compare what came back, before a way back")],
            (false, false) => vec![step("revert", "switch back")],
        };
        steps.push(step("complete", "close the way back"));
        steps
    }

    fn has_way_back(&self) -> bool {
        self.plan.is_none_or(|plan| !plan.inverse.is_empty())
    }
}

/// For how long nothing has proved what the next switch rests on, if that is too long.
fn stale_seconds(state: &State, plan: Option<&Plan>, now: i64) -> Option<i64> {
    let age = match state.phase {
        Phase::Tailing | Phase::Ready | Phase::CuttingOver if state.verified.is_some() => {
            state.comparison_age(now)
        }
        Phase::CutOver if plan.is_some_and(way_back::has_one) => way_back::age(state, now),
        _ => return None,
    };
    (age > COMPARISON_SECONDS).then_some(age)
}

#[cfg(test)]
pub(super) mod tests {
    use rules::migration::plan::{Backfill, FUNCTION_SECONDS, Source};

    use super::*;
    use control::verbs::{Answer, Verb, answer};

    /// A plan that says what a verb depends on, and no more.
    pub(in super::super) fn plan(kind: Kind, has_way_back: bool) -> Plan {
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
        }
    }

    fn commands(standing: &Standing<'_>) -> Vec<String> {
        standing.steps().into_iter().map(|(command, _)| command).collect()
    }

    #[test]
    fn whoever_may_have_no_worker_is_told_to_work_first() {
        let ready = Standing::new("shop", Phase::Ready, None);
        assert_eq!(commands(&ready), ["weir migrate cutover shop"]);
        let unfollowed = Standing { is_unfollowed: true, ..ready };
        let expected = ["weir migrate work shop", "weir migrate cutover shop"];
        assert_eq!(commands(&unfollowed), expected);
        let compared = Standing { is_compared: true, ..ready };
        assert_eq!(commands(&compared), ["weir migrate resume shop"]);
        let hopeless = Standing { is_hopeless: true, ..ready };
        assert_eq!(commands(&hopeless), ["weir migrate verify shop"]);
    }

    #[test]
    fn what_is_in_the_way_of_a_switch_comes_before_it() {
        let (split, in_place) = (plan(Kind::Split, true), plan(Kind::InPlace, true));
        let purge = plan(Kind::Purge, false);
        let of = |phase, plan| Standing::new("shop", phase, Some(plan));
        let hopeless = |standing| commands(&Standing { is_hopeless: true, ..standing });
        let cut_over = of(Phase::CutOver, &split);
        let expected = ["weir migrate verify shop", "weir migrate complete shop"];
        assert_eq!(hopeless(cut_over), expected);
        let differs = Standing { back_differences: 2, ..cut_over };
        let expected = ["verify --repair", "revert --with-differences", "complete"];
        assert_eq!(commands(&differs), expected.map(|verb| format!("weir migrate {verb} shop")));
        let expected = ["verify --repair", "complete"];
        let stale = Standing { stale_seconds: Some(90_000), ..differs };
        assert_eq!(commands(&stale), expected.map(|verb| format!("weir migrate {verb} shop")));
        assert_eq!(hopeless(of(Phase::Ready, &purge)), ["weir migrate verify shop"]);
        let expected = ["weir migrate revert shop", "weir migrate complete shop"];
        assert_eq!(hopeless(of(Phase::CutOver, &in_place)), expected);
        let unfit = Standing { is_unfit: true, ..of(Phase::Ready, &split) };
        assert_eq!(commands(&unfit), ["weir migrate abort shop"]);
        // An end goes on with its own comparison, but not past what is in its way.
        let ended = |standing| Standing { is_of_end: true, is_not_noted: true, ..standing };
        let left = ended(of(Phase::Ready, &in_place));
        let complete = ["weir migrate complete shop"];
        assert_eq!(commands(&left), complete);
        assert_eq!(commands(&Standing { is_compared: true, ..left }), complete);
        assert_eq!(commands(&ended(of(Phase::Ready, &purge))), complete);
        let is_late = Some(COMPARISON_SECONDS + 1);
        assert_eq!(commands(&Standing { stale_seconds: is_late, ..left }), complete);
        assert_eq!(hopeless(left), ["weir migrate verify shop"]);
        let expected = ["weir migrate complete shop", "weir migrate revert shop"];
        assert_eq!(commands(&ended(of(Phase::CutOver, &in_place))), expected);
        // A comparison is at work: one more is not the way on.
        let tailing = Standing { is_compared: true, ..of(Phase::Tailing, &split) };
        assert_eq!(commands(&tailing), ["weir migrate resume shop"]);
        let preparing = of(Phase::Preparing, &split);
        assert_eq!(commands(&preparing), ["weir migrate start PLAN"]);
        let beginning = Standing { is_beginning: true, ..preparing };
        assert_eq!(commands(&beginning), ["weir migrate wait shop"]);
    }

    #[test]
    fn writers_that_are_held_up_are_let_go() {
        let for_good = plan(Kind::Restructure, false);
        let cutting_over = Standing::new("shop", Phase::CuttingOver, Some(&for_good));
        let expected = ["weir migrate cutover --no-way-back shop", "weir migrate abort shop"];
        assert_eq!(commands(&cutting_over), expected);
        let old = Standing { stale_seconds: Some(COMPARISON_SECONDS + 1), ..cutting_over };
        assert_eq!(commands(&old)[0], "weir migrate abort shop");
        let aborted = Standing::new("shop", Phase::Aborted, Some(&for_good));
        assert!(commands(&aborted).is_empty());
        let half_way = Standing { is_held_up: true, is_unswept: true, ..aborted };
        assert_eq!(commands(&half_way), ["weir migrate abort shop"]);
    }

    /// The verb of a command, if it is one that may be refused.
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
    fn what_is_offered_is_not_refused_where_it_is_offered() {
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
            // A purge is not switched.
            let is_there = |phase: &Phase| {
                kind != Kind::Purge || !(Phase::CuttingOver..=Phase::Reverted).contains(phase)
            };
            for phase in Phase::ALL.into_iter().filter(is_there) {
                let plain = Standing::new("shop", phase, Some(plan));
                let age = Some(COMPARISON_SECONDS + 1);
                let may_be_stale = phase != Phase::CutOver || way_back::has_one(plan);
                let is_of_end = plain.may_end_in_place();
                let others = [
                    Standing { is_paused: true, ..plain },
                    Standing { is_unswept: true, ..plain },
                    Standing { is_still_followed: true, ..plain },
                    Standing { differences: 2, ..plain },
                    Standing { is_compared: true, ..plain },
                    Standing { is_compared: true, differences: 2, ..plain },
                    Standing { is_compared: true, is_not_noted: true, is_of_end, ..plain },
                    Standing { is_not_noted: true, is_of_end, ..plain },
                    Standing { is_beginning: true, ..plain },
                    Standing { is_unfit: true, ..plain },
                    // Nothing comes back where nothing is to go back.
                    Standing { back_differences: 2 * u64::from(may_be_stale), ..plain },
                    Standing { stale_seconds: age.filter(|_| may_be_stale), ..plain },
                ];
                for command in others.iter().chain([&plain]).flat_map(commands) {
                    let Some(verb) = verb_of(&command) else { continue };
                    let answer = answer("shop", kind, verb, phase);
                    assert!(!matches!(answer, Answer::Refused(_)), "{phase:?}: {command}");
                }
            }
        }
    }
}
