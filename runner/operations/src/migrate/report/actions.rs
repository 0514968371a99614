//! The subcommands that are safe to run now, each with its exact command and its consequence.
//!
//! `control::verbs` decides which subcommands the phase allows, `next_steps` which would fail in
//! the current state, and `safety` whether a cut-over can succeed. This module only combines these
//! decisions, and omits subcommands that would have no effect.

use control::State;
use control::verbs::{Verb, VerbDecision, decide_verb};
use rules::migration::Phase;
use rules::migration::plan::{Kind, Plan};
use serde::Serialize;
use serde_json::Value;

use crate::migrate::adjust;
use crate::migrate::report::pointer::at;
use crate::migrate::report::safety::{Safety, of_cutover};
use crate::migrate::start::workers;
use crate::migrate::switch::{complete, cutover, revert};

/// A subcommand that is safe to run now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Action {
    /// The subcommand, such as `pause`.
    pub verb: String,
    /// The complete command with its flags.
    pub command: String,
    /// The consequence of the command, in one sentence.
    pub consequence: String,
}

/// Returns the subcommands that are safe for a migration with this plan, state and status.
pub(crate) fn safe(name: &str, plan: Option<&Plan>, state: &State, status: &Value) -> Vec<Action> {
    let kind = plan.map_or(Kind::Restructure, |plan| plan.kind);
    let standing = Standing { name, kind, plan, state, status };
    let mut actions = standing.adjustments();
    actions.extend(standing.switches());
    // Adds the other commands that `status` suggests, such as a command that starts workers.
    for (command, why) in steps(status) {
        if actions.iter().all(|action| action.command != command) {
            let verb = command.split(' ').nth(2).unwrap_or_default().to_owned();
            let is_decided =
                matches!(verb.as_str(), "cutover" | "revert" | "complete" | "verify" | "resume");
            if !is_decided {
                let (command, consequence) = (command.to_owned(), why.to_owned());
                actions.push(Action { verb, command, consequence });
            }
        }
    }
    actions
}

/// The facts on which the list of safe subcommands depends.
struct Standing<'s> {
    name: &'s str,
    kind: Kind,
    plan: Option<&'s Plan>,
    state: &'s State,
    status: &'s Value,
}

impl Standing<'_> {
    fn allows(&self, verb: Verb) -> bool {
        let answer = decide_verb(self.name, self.kind, verb, self.state.phase);
        matches!(answer, VerbDecision::CarryOut | VerbDecision::TakeOver)
    }

    fn is(&self, flag: &str) -> bool {
        at(self.status, flag).as_bool() == Some(true)
    }

    fn action(&self, verb: &str, consequence: impl Into<String>) -> Action {
        let command = format!("weir migrate {verb} {}", self.name);
        Action { verb: verb.to_owned(), command, consequence: consequence.into() }
    }

    /// Returns the command that `status` suggests for a subcommand, with its flags.
    fn advised(&self, verb: &str) -> Option<String> {
        let is_meant = |command: &&str| command.split(' ').nth(2) == Some(verb);
        steps(self.status).map(|(command, _)| command).find(is_meant).map(str::to_owned)
    }

    /// Returns the subcommands that control the backfill.
    fn adjustments(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        let is_copying = matches!(self.state.phase, Phase::Preparing | Phase::Copying);
        if self.allows(Verb::Pause) && is_copying && !self.state.paused {
            actions.push(
                self.action("pause", "the backfill would stop; changes would still be applied"),
            );
        }
        let is_set_aside = at(self.status, "/failing/set_aside").as_u64().unwrap_or(0) > 0;
        let wakes = is_set_aside || self.is("/compared_now");
        if self.allows(Verb::Resume) && (self.state.is_paused() || wakes) {
            let consequence = match self.state.is_paused() {
                true => "the paused backfill would resume",
                false => "workers would be notified of the open segments again",
            };
            actions.push(self.action("resume", consequence));
        }
        if self.allows(Verb::Throttle) && workers::keep_rate(self.state) {
            let mut action = self.action(
                "throttle",
                "the backfill would read at most N items per second, over all workers; N = 0 removes the limit",
            );
            action.command.push_str(" --rate N");
            actions.push(action);
        }
        actions
    }

    /// Returns the subcommands that compare tables, switch readers and writers, or end the
    /// migration.
    fn switches(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        let is_readable = !at(self.status, "/stream_problem").is_string();
        if self.allows(Verb::Verify) && !self.is("/compared_now") && is_readable {
            let consequence = match self.state.phase {
                Phase::CutOver => {
                    "workers would convert every target item back, and compare the results with the sources"
                }
                _ => {
                    "workers would read every item of the sources and targets, and compare them while clients write"
                }
            };
            actions.push(self.action("verify", consequence));
            if let (Some(action), Some(command)) = (actions.last_mut(), self.advised("verify")) {
                action.command = command;
            }
        }
        let may_cut_over = self.plan.is_some_and(|plan| {
            matches!(of_cutover(plan, self.status).answer, Safety::Yes | Safety::Begun)
        });
        let is_seen = at(self.status, "/stream").is_object();
        let may_revert = self.state.phase != Phase::CutOver || is_seen || self.kind.is_in_place();
        for (verb, name, is_safe) in [
            (Verb::Cutover, "cutover", may_cut_over),
            (Verb::Revert, "revert", may_revert),
            (Verb::Complete, "complete", true),
        ] {
            let advised = self.advised(name).filter(|_| is_safe && self.allows(verb));
            let Some((command, plan)) = advised.zip(self.plan) else { continue };
            let consequence = match verb {
                Verb::Cutover => cutover::consequence(plan),
                Verb::Revert => revert::consequence(plan),
                _ => complete::consequence(plan.kind).to_owned(),
            };
            actions.push(Action { verb: name.to_owned(), command, consequence });
        }
        if self.allows(Verb::Abort) {
            let consequence = adjust::consequence_of_abort(self.name, self.kind);
            actions.push(self.action("abort", consequence));
        }
        actions
    }
}

/// Returns the commands that a status suggests, each with its reason.
fn steps(status: &Value) -> impl Iterator<Item = (&str, &str)> {
    let steps = at(status, "/next_steps").as_array().into_iter().flatten();
    steps.filter_map(|step| Some((at(step, "/command").as_str()?, at(step, "/why").as_str()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::migrate::report::next_steps::tests::plan;

    /// Returns the commands that are safe in a phase, without the prefix `weir migrate`.
    fn commands(state: &State, advised: &[&str], member: Option<(&str, Value)>) -> Vec<String> {
        let plan = plan(Kind::Restructure, true);
        let steps: Vec<Value> = advised
            .iter()
            .map(|verb| json!({"command": format!("weir migrate {verb} shop"), "why": "w"}))
            .collect();
        let mut status = json!({
            "phase": state.phase.as_str(), "stream": {"waiting": 0}, "next_steps": steps,
        });
        if let Some((name, value)) = member {
            status[name] = value;
        }
        let actions = safe("shop", Some(&plan), state, &status);
        let head = "weir migrate ";
        actions.iter().map(|action| action.command.replacen(head, "", 1)).collect()
    }

    #[test]
    fn only_safe_verbs_with_an_effect_are_listed() {
        let state = |phase| State { phase, ..State::new("shop") };
        let paused = State { paused: true, ..state(Phase::Copying) };
        let unread = || Some(("stream", Value::Null));
        for (state, advised, member, expected) in [
            (
                state(Phase::Copying),
                &["wait"][..],
                None,
                &["pause shop", "throttle shop --rate N", "abort shop", "wait shop"][..],
            ),
            (paused, &["resume"], None, &["resume shop", "throttle shop --rate N", "abort shop"]),
            (
                state(Phase::Tailing),
                &["verify --repair", "abort"],
                None,
                &["verify --repair shop", "abort shop"],
            ),
            (
                state(Phase::Ready),
                &["cutover"],
                None,
                &["verify shop", "cutover shop", "abort shop"],
            ),
            (state(Phase::Ready), &["cutover"], unread(), &["verify shop", "abort shop"]),
            (
                state(Phase::Ready),
                &["resume"],
                Some(("compared_now", json!(true))),
                &["resume shop", "abort shop"],
            ),
            (
                state(Phase::Ready),
                &["work", "cutover"],
                Some(("stream", json!({"unfollowed": "cats"}))),
                &["verify shop", "abort shop", "work shop"],
            ),
            (
                state(Phase::CuttingOver),
                &["cutover", "abort"],
                None,
                &["cutover shop", "abort shop"],
            ),
            (
                state(Phase::CutOver),
                &["revert", "complete"],
                None,
                &["verify shop", "revert shop", "complete shop"],
            ),
            (
                state(Phase::CutOver),
                &["revert", "complete"],
                unread(),
                &["verify shop", "complete shop"],
            ),
            (state(Phase::Returning), &["revert"], None, &["revert shop"]),
            (state(Phase::Completed), &[], None, &[]),
        ] {
            assert_eq!(commands(&state, advised, member.clone()), expected, "{state:?} {member:?}");
        }
    }

    #[test]
    fn a_migration_without_a_plan_can_only_be_aborted() {
        let state = State { phase: Phase::Preparing, ..State::new("shop") };
        let status = json!({
            "phase": "preparing",
            "next_steps": [{"command": "weir migrate start PLAN", "why": "resume the start"}],
        });
        let verbs = |actions: Vec<Action>| -> Vec<String> {
            actions.into_iter().map(|action| action.verb).collect()
        };
        let found = verbs(safe("shop", None, &state, &status));
        assert_eq!(found, ["pause", "throttle", "abort", "start"]);
    }
}
