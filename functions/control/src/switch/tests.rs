//! Tests of switches from text cases. A case is the initial phase and the failing steps; the
//! expected output is all steps and the result.

use super::*;

fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

fn outcome(name: &str) -> Outcome {
    match name {
        "refused" => Outcome::Refused,
        "timed out" => Outcome::TimedOut,
        "failed" => Outcome::Failed,
        "committed" => Outcome::Committed,
        other => panic!("no outcome `{other}`"),
    }
}

/// Runs the switch of a case such as `cutover ready, asks followers; drain: timed out`.
fn trace(case: &str) -> String {
    let mut parts = case.split("; ");
    let first = parts.next().unwrap();
    let (verb, rest) = first.split_once(' ').unwrap();
    let (phase, asks) = rest.split_once(", ").unwrap_or((rest, ""));
    let switch = if verb == "cutover" { Switch::CUTOVER } else { Switch::REVERT };
    let phase = Phase::from_name(phase).unwrap();
    let known = SwitchFacts { phase, asks_followers: asks == "asks followers" };
    let faults: Vec<&str> = parts.collect();
    let (mut step, mut cause, mut steps) = (switch.first(known), Cause::default(), Vec::new());
    loop {
        let name = words(&format!("{step:?}"));
        steps.push(name.clone());
        assert!(steps.len() < 30, "{steps:?}");
        let fault = faults.iter().find_map(|fault| fault.strip_prefix(&format!("{name}: ")));
        let how = fault.map_or(Outcome::Done, outcome);
        match switch.next(known, step, how, &mut cause) {
            Next::Do(next) => step = next,
            Next::End(end) => {
                return format!("{} -> {}", steps.join(", "), words(&format!("{end:?}")));
            }
        }
    }
}

#[test]
fn switches_as_text() {
    let text = include_str!("../../testdata/switch.txt");
    let found: Vec<String> = text
        .split("\n\n")
        .map(|case| {
            let mut lines = case.lines().filter(|line| !line.starts_with('#'));
            let case = lines.next().unwrap();
            format!("{case}\n  {}", trace(case))
        })
        .collect();
    let expected: Vec<String> = text
        .split("\n\n")
        .map(|case| {
            case.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
        })
        .collect();
    assert_eq!(found.join("\n\n"), expected.join("\n\n"));
}

/// Goal: a failure before the commit unblocks writers and undoes every step. A failure after the
/// commit never undoes the switch.
#[test]
fn whatever_goes_wrong_rolls_back_or_finishes() {
    let outcomes = [Outcome::Refused, Outcome::TimedOut, Outcome::Failed];
    for switch in [Switch::CUTOVER, Switch::REVERT] {
        for phase in [switch.before(), switch.claimed_phase(), switch.committed()] {
            let known = SwitchFacts { phase, asks_followers: phase == switch.before() };
            let mut step = switch.first(known);
            loop {
                for outcome in outcomes {
                    let mut cause = Cause::default();
                    let next = switch.next(known, step, outcome, &mut cause);
                    let expected = match step {
                        Step::OpenRoute | Step::Finish => Next::End(End::Unfinished),
                        Step::Clean => Next::End(End::NeedsCleaning),
                        step if step > Step::Claim => Next::Do(Step::RollBack),
                        _ => Next::End(ended(outcome)),
                    };
                    assert_eq!(next, expected, "{switch:?} {step:?} {outcome:?}");
                    if next != Next::Do(Step::RollBack) {
                        continue;
                    }
                    let mut rolled_back = |how| switch.next(known, Step::RollBack, how, &mut cause);
                    assert_eq!(rolled_back(Outcome::Done), Next::End(ended(outcome)));
                    assert_eq!(rolled_back(Outcome::Failed), Next::End(End::Stuck));
                    assert_eq!(rolled_back(Outcome::Committed), Next::Do(Step::OpenRoute));
                }
                match switch.next(known, step, Outcome::Done, &mut Cause::default()) {
                    Next::Do(next) => step = next,
                    Next::End(end) => {
                        assert_eq!(end, End::Switched);
                        break;
                    }
                }
            }
        }
    }
}
