//! Expressions of the model, and their conversion to strings for a request.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::AttributeValue;

/// One step of a document path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Member(&'static str),
    Element(usize),
}

/// A document path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path {
    pub(super) root: &'static str,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(super) enum Operand {
    Path(Path),
    Size(Path),
    Value(AttributeValue),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A condition or a filter.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    Compare(Operand, Comparator, Operand),
    Between(Operand, AttributeValue, AttributeValue),
    In(Operand, Vec<AttributeValue>),
    Exists(Path),
    NotExists(Path),
    Type(Path, &'static str),
    BeginsWith(Path, AttributeValue),
    Contains(Path, AttributeValue),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
}

impl Condition {
    /// Adds the attributes that the condition reads.
    pub(super) fn add_roots(&self, roots: &mut Vec<&'static str>) {
        let mut add = |operand: &Operand| match operand {
            Operand::Path(path) | Operand::Size(path) => {
                roots.push(path.root);
            }
            Operand::Value(_) => {}
        };
        match self {
            Self::Compare(left, _, right) => {
                add(left);
                add(right);
            }
            Self::Between(operand, ..) | Self::In(operand, _) => add(operand),
            Self::Exists(path)
            | Self::NotExists(path)
            | Self::Type(path, _)
            | Self::BeginsWith(path, _)
            | Self::Contains(path, _) => {
                roots.push(path.root);
            }
            Self::And(left, right) | Self::Or(left, right) => {
                left.add_roots(roots);
                right.add_roots(roots);
            }
            Self::Not(inner) => inner.add_roots(roots),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Source {
    Path(Path),
    Value(AttributeValue),
    IfNotExists(Path, AttributeValue),
}

#[derive(Clone, Debug)]
pub(super) enum Assigned {
    Plain(Source),
    Sum(Source, Source),
    Difference(Source, Source),
    Joined(Source, Source),
}

/// One action of an update. All actions of an update have different roots.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Set(Path, Assigned),
    Remove(Path),
    Add(&'static str, AttributeValue),
    Delete(&'static str, AttributeValue),
}

impl Action {
    pub(super) fn root(&self) -> &'static str {
        match self {
            Self::Set(path, _) | Self::Remove(path) => path.root,
            Self::Add(root, _) | Self::Delete(root, _) => root,
        }
    }

    pub(super) fn only_removes(&self) -> bool {
        matches!(self, Self::Remove(_) | Self::Delete(..))
    }

    pub(super) fn changes_whole_attribute(&self) -> bool {
        match self {
            Self::Set(path, _) | Self::Remove(path) => path.steps.is_empty(),
            Self::Add(..) | Self::Delete(..) => true,
        }
    }
}

/// A writer of the expressions of one request, which collects their placeholders.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) names: BTreeMap<String, String>,
    pub(super) values: BTreeMap<String, AttributeValue>,
}

impl Writer {
    pub(super) fn value(&mut self, value: &AttributeValue) -> String {
        let name = format!(":v{}", self.values.len());
        self.values.insert(name.clone(), value.clone());
        name
    }

    /// Writes a path. Members are placeholders and roots are literal names, so that the test covers both
    /// forms.
    pub(super) fn path(&mut self, path: &Path) -> String {
        let mut text = path.root.to_owned();
        for step in &path.steps {
            let _ = match step {
                Step::Member(name) => {
                    self.names.insert(format!("#{name}"), (*name).to_owned());
                    write!(text, ".#{name}")
                }
                Step::Element(index) => write!(text, "[{index}]"),
            };
        }
        text
    }

    fn operand(&mut self, operand: &Operand) -> String {
        match operand {
            Operand::Path(path) => self.path(path),
            Operand::Size(path) => format!("size({})", self.path(path)),
            Operand::Value(value) => self.value(value),
        }
    }

    pub(super) fn condition(&mut self, condition: &Condition) -> String {
        match condition {
            Condition::Compare(left, comparator, right) => {
                let sign = match comparator {
                    Comparator::Equal => "=",
                    Comparator::Unequal => "<>",
                    Comparator::Less => "<",
                    Comparator::LessOrEqual => "<=",
                    Comparator::Greater => ">",
                    Comparator::GreaterOrEqual => ">=",
                };
                format!("{} {sign} {}", self.operand(left), self.operand(right))
            }
            Condition::Between(operand, low, high) => {
                let operand = self.operand(operand);
                format!("{operand} BETWEEN {} AND {}", self.value(low), self.value(high))
            }
            Condition::In(operand, values) => {
                let operand = self.operand(operand);
                let values: Vec<String> = values.iter().map(|value| self.value(value)).collect();
                format!("{operand} IN ({})", values.join(", "))
            }
            Condition::Exists(path) => format!("attribute_exists({})", self.path(path)),
            Condition::NotExists(path) => format!("attribute_not_exists({})", self.path(path)),
            Condition::Type(path, name) => {
                let path = self.path(path);
                let name = self.value(&AttributeValue::S((*name).to_owned()));
                format!("attribute_type({path}, {name})")
            }
            Condition::BeginsWith(path, value) => {
                format!("begins_with({}, {})", self.path(path), self.value(value))
            }
            Condition::Contains(path, value) => {
                format!("contains({}, {})", self.path(path), self.value(value))
            }
            Condition::And(left, right) => {
                format!("({}) AND ({})", self.condition(left), self.condition(right))
            }
            Condition::Or(left, right) => {
                format!("({}) OR ({})", self.condition(left), self.condition(right))
            }
            Condition::Not(inner) => format!("NOT ({})", self.condition(inner)),
        }
    }

    fn source(&mut self, source: &Source) -> String {
        match source {
            Source::Path(path) => self.path(path),
            Source::Value(value) => self.value(value),
            Source::IfNotExists(path, value) => {
                format!("if_not_exists({}, {})", self.path(path), self.value(value))
            }
        }
    }

    pub(super) fn update(&mut self, actions: &[Action]) -> String {
        let mut sections: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for action in actions {
            let (section, text) = match action {
                Action::Set(path, assigned) => {
                    let path = self.path(path);
                    let value = match assigned {
                        Assigned::Plain(source) => self.source(source),
                        Assigned::Sum(left, right) => {
                            format!("{} + {}", self.source(left), self.source(right))
                        }
                        Assigned::Difference(left, right) => {
                            format!("{} - {}", self.source(left), self.source(right))
                        }
                        Assigned::Joined(left, right) => {
                            format!("list_append({}, {})", self.source(left), self.source(right))
                        }
                    };
                    ("SET", format!("{path} = {value}"))
                }
                Action::Remove(path) => ("REMOVE", self.path(path)),
                Action::Add(root, value) => ("ADD", format!("{root} {}", self.value(value))),
                Action::Delete(root, value) => ("DELETE", format!("{root} {}", self.value(value))),
            };
            sections.entry(section).or_default().push(text);
        }
        let sections: Vec<String> =
            sections.iter().map(|(name, parts)| format!("{name} {}", parts.join(", "))).collect();
        sections.join(" ")
    }
}
