//! Evaluates the conditions of a template. They determine the branches of `Fn::If` and the
//! existence of resources.

use crate::{
    declarations::resource::Resource,
    diagnostic::{Span, listed, similar},
    evaluation::resolver::Resolver,
    evaluation::value::Data,
    syntax::intrinsic::Intrinsic,
    syntax::node::{Kind, Node},
};

/// An operand of `Fn::Equals`.
enum Comparable {
    Text(String),
    /// A reference whose value is unknown. The field is the reference.
    Unknown(String),
}

impl Resolver<'_> {
    /// Returns true if the resource exists, because it has no condition or its condition is true.
    /// Returns `None` if an error was reported.
    pub(crate) fn exists(&self, resource: &Resource<'_>) -> Option<bool> {
        match resource.node.get("Condition") {
            Some(node) => match node.as_text() {
                Some(name) => self.condition(name, node.at),
                None => self.wrong_arguments("Condition", "the name of a condition", node.at),
            },
            None => Some(true),
        }
    }

    /// Returns the branch of `Fn::If` that the condition selects.
    pub(crate) fn branch<'n>(&self, argument: &'n Node, at: Span) -> Option<&'n Node> {
        let Some([name, if_true, if_false]) = self.arguments(argument) else {
            return self.wrong_arguments("!If", "[ConditionName, value, value]", at);
        };
        let Some(condition) = name.as_text() else {
            return self.wrong_arguments("!If", "[ConditionName, value, value]", name.at);
        };
        Some(if self.condition(condition, name.at)? { if_true } else { if_false })
    }

    /// Returns the value of the condition with this name; `None` if an error was reported.
    fn condition(&self, name: &str, at: Span) -> Option<bool> {
        if let Some(known) = self.remembered_condition(name) {
            if known.is_none() && !self.findings.has_errors() {
                self.findings.error(
                    at,
                    format!("the condition `{name}` depends on itself"),
                    "remove the circular reference",
                );
            }
            return known;
        }
        let Some(node) = self.conditions.and_then(|conditions| conditions.get(name)) else {
            let known: Vec<&str> = self
                .conditions
                .map_or(&[][..], Node::entries)
                .iter()
                .map(|entry| entry.key.as_str())
                .collect();
            let help = match similar(name, known.iter().copied()) {
                Some(meant) => format!("write `{meant}`"),
                None if known.is_empty() => format!("declare `{name}` under `Conditions`"),
                None => format!("write {}, or declare `{name}` under `Conditions`", listed(known)),
            };
            self.findings.error(at, format!("unknown condition `{name}`"), help);
            return None;
        };
        self.remember_condition(name, None);
        let value = self.one_deeper(at, || self.truth(node))?;
        self.remember_condition(name, Some(value));
        Some(value)
    }

    /// Evaluates the body of a condition.
    fn truth(&self, node: &Node) -> Option<bool> {
        if let [entry] = node.entries()
            && entry.key == "Condition"
            && let Some(name) = entry.value.as_text()
        {
            return self.condition(name, entry.value.at);
        }
        let Kind::Call(intrinsic, argument) = &node.kind else {
            return self.wrong_arguments(
                "Conditions",
                "!Equals, !And, !Or, !Not or !Condition",
                node.at,
            );
        };
        match intrinsic {
            Intrinsic::Condition => match argument.as_text() {
                Some(name) => self.condition(name, argument.at),
                None => self.wrong_arguments("!Condition", "the name of a condition", node.at),
            },
            Intrinsic::Equals => {
                let Some([left, right]) = self.arguments(argument) else {
                    return self.wrong_arguments("!Equals", "[a, b]", node.at);
                };
                self.are_equal(left, right)
            }
            Intrinsic::Not => match self.arguments(argument) {
                Some([inner]) => self.truth(inner).map(|value| !value),
                None => self.wrong_arguments("!Not", "[condition]", node.at),
            },
            Intrinsic::And | Intrinsic::Or => {
                let Kind::List(items) = &argument.kind else {
                    return self.wrong_arguments(
                        &intrinsic.name(),
                        "a list of conditions",
                        node.at,
                    );
                };
                // CloudFormation allows 2 to 10 conditions.
                if !(2..=10).contains(&items.len()) {
                    return self.wrong_arguments(&intrinsic.name(), "2 to 10 conditions", node.at);
                }
                let mut truths = Vec::with_capacity(items.len());
                for item in items {
                    truths.push(self.truth(item)?);
                }
                Some(match intrinsic {
                    Intrinsic::And => truths.iter().all(|truth| *truth),
                    _ => truths.iter().any(|truth| *truth),
                })
            }
            _ => self.wrong_arguments(
                "Conditions",
                "!Equals, !And, !Or, !Not or !Condition",
                node.at,
            ),
        }
    }

    /// Returns true if two values are equal. An unknown value equals only the same unknown value,
    /// because a condition usually compares with one specific value.
    fn are_equal(&self, left: &Node, right: &Node) -> Option<bool> {
        let (of_left, of_right) = (self.comparable(left)?, self.comparable(right)?);
        let (at, unknown) = match (&of_left, &of_right) {
            (Comparable::Unknown(one), Comparable::Unknown(other)) if one == other => {
                return Some(true);
            }
            (Comparable::Unknown(name), _) => (left.at, name),
            (_, Comparable::Unknown(name)) => (right.at, name),
            (Comparable::Text(left), Comparable::Text(right)) => return Some(left == right),
        };
        self.findings.warning(
            at,
            format!(
                "the value of `{unknown}` is unknown on this machine, so this comparison counts as not equal"
            ),
            self.help_without_value(unknown),
        );
        Some(false)
    }

    /// Returns an operand of `Fn::Equals`. Lists are compared by their joined strings.
    fn comparable(&self, node: &Node) -> Option<Comparable> {
        let value = self.resolve(node)?;
        if let Some(reference) = value.reference() {
            return Some(Comparable::Unknown(reference));
        }
        match value.data {
            Data::List(items) => {
                let mut texts = Vec::with_capacity(items.len());
                for item in items {
                    if let Some(reference) = item.reference() {
                        return Some(Comparable::Unknown(reference));
                    }
                    texts.push(item.text(self.findings)?);
                }
                Some(Comparable::Text(texts.join(",")))
            }
            _ => value.text(self.findings).map(Comparable::Text),
        }
    }
}
