//! The check of several rules together: duplicate names, attributes that two rules write, and rules
//! that copy attributes in a cycle.
//!
//! `tables` checks the tables and indexes.

use std::collections::{BTreeMap, BTreeSet};

use super::copy_rule::CopyRule;

/// A problem with a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The position of the rule in the declaration, from 0.
    pub rule: usize,
    /// The problem, and what to write instead.
    pub text: String,
}

type Place<'r> = (&'r str, &'r str);

/// Returns all problems of the rules.
#[must_use]
pub fn check(rules: &[CopyRule]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (mut names, mut written) = (BTreeSet::new(), BTreeMap::new());
    for (number, rule) in rules.iter().enumerate() {
        let mut problem = |text: String| problems.push(Problem { rule: number, text });
        if !names.insert(&rule.name) {
            problem(format!(
                "another rule has the name `{}`; give each rule a unique name",
                rule.name
            ));
        }
        for to in rule.attributes.keys() {
            if *to == rule.index_key {
                problem(format!(
                    "`{to}` holds the origin's key in each copy, so it cannot also be a copied attribute"
                ));
            }
            if let Some(other) = written.insert((rule.target.as_str(), to.as_str()), &rule.name) {
                problem(format!(
                    "rule `{other}` also writes `{to}` of table `{}`; remove it from one of the two rules",
                    rule.target
                ));
            }
        }
    }
    problems.extend(cycle(rules));
    problems
}

/// Returns the first cycle: an attribute that is copied into itself through any number of rules.
/// The attribute with the origin's key counts as copied too, because it selects the origin of the
/// copied values.
fn cycle(rules: &[CopyRule]) -> Option<Problem> {
    let mut edges: BTreeMap<Place<'_>, Vec<(Place<'_>, usize)>> = BTreeMap::new();
    for (number, rule) in rules.iter().enumerate() {
        for (to, from) in &rule.attributes {
            let target = (rule.target.as_str(), to.as_str());
            let sources = [
                (rule.origin.as_str(), from.as_str()),
                (rule.target.as_str(), rule.index_key.as_str()),
            ];
            for source in sources {
                edges.entry(source).or_default().push((target, number));
            }
        }
    }
    let mut done = BTreeSet::new();
    for start in edges.keys() {
        // The attributes on the current path, each with the number of its edges that were already
        // followed.
        let mut path = vec![(*start, 0)];
        while let Some((place, next)) = path.last_mut() {
            let Some((target, rule)) = edges.get(place).and_then(|edges| edges.get(*next)) else {
                done.insert(*place);
                path.pop();
                continue;
            };
            *next += 1;
            if let Some(begin) = path.iter().position(|(place, _)| place == target) {
                let names =
                    path.iter().skip(begin).map(|((table, name), _)| format!("{table}.{name}"));
                let way = names.chain([format!("{}.{}", target.0, target.1)]).collect::<Vec<_>>();
                let text =
                    format!("the rules feed each other: {}; break the loop", way.join(" -> "));
                return Some(Problem { rule: *rule, text });
            }
            if !done.contains(target) {
                path.push((*target, 0));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::parse_rules;
    use super::*;

    fn problems(rules: &[(&str, &str, &str, &str)]) -> Vec<String> {
        let text: String = rules
            .iter()
            .map(|(name, from, to, attributes)| {
                format!("- {{name: {name}, from: {from}, to: {to}, index: i, key: {{oid: id}}, attributes: {{{attributes}}}, on-delete: keep}}\n")
            })
            .collect();
        check(&parse_rules(&text).unwrap())
            .into_iter()
            .map(|p| format!("{}: {}", p.rule, p.text))
            .collect()
    }

    #[test]
    fn rules_that_feed_each_other_are_found() {
        assert!(
            problems(&[
                ("x", "aaa", "bbb", "n: n"),
                ("y", "bbb", "ccc", "n: n"),
                ("z", "ccc", "aaa", "m: other")
            ])
            .is_empty()
        );
        assert_eq!(
            problems(&[
                ("x", "aaa", "bbb", "n: n"),
                ("y", "bbb", "ccc", "n: n"),
                ("z", "ccc", "aaa", "n: n")
            ]),
            ["2: the rules feed each other: aaa.n -> bbb.n -> ccc.n -> aaa.n; break the loop"]
        );
        assert_eq!(
            problems(&[("x", "aaa", "aaa", "n: n")]),
            ["0: the rules feed each other: aaa.n -> aaa.n; break the loop"]
        );
    }

    #[test]
    fn one_attribute_has_one_origin() {
        assert_eq!(
            problems(&[("x", "aaa", "bbb", "n: n"), ("x", "ccc", "bbb", "n: m, oid: id")]),
            [
                "1: another rule has the name `x`; give each rule a unique name",
                "1: rule `x` also writes `n` of table `bbb`; remove it from one of the two rules",
                "1: `oid` holds the origin's key in each copy, so it cannot also be a copied attribute",
                "1: the rules feed each other: bbb.oid -> bbb.oid; break the loop",
            ]
        );
    }
}
