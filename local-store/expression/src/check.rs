//! The second pass. It checks reserved words, list indexes, function names and their positions, and
//! the number of operators, in the order of the expression's text.
//!
//! This pass does not resolve placeholders: a later pass in `resolve` does.

use model::limits::EXPRESSION_OPERATORS_MAX;

use crate::error::{ExpressionError, ExpressionKind};
use crate::reserved::is_reserved;
use crate::syntax::{Call, Node, Step, Steps, UpdateSyntax};

/// The maximum list index, inclusive, as measured in DynamoDB (September 2026).
const LIST_INDEX_MAX: u32 = u32::MAX - 1;

/// A position in which a function is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The function is a condition.
    Condition,
    /// The function is an operand of a comparison or of another function in a condition.
    Operand,
    /// The function is on the right-hand side of `SET`, or an operand of another function on that
    /// side.
    UpdateOperand,
    /// The function is on the right-hand side of `SET`, but not an operand of another function.
    UpdateValue,
}

const FUNCTIONS: [(&str, Place, usize); 8] = [
    ("attribute_exists", Place::Condition, 1),
    ("attribute_not_exists", Place::Condition, 1),
    ("attribute_type", Place::Condition, 2),
    ("begins_with", Place::Condition, 2),
    ("contains", Place::Condition, 2),
    ("size", Place::Operand, 1),
    ("if_not_exists", Place::UpdateOperand, 2),
    ("list_append", Place::UpdateValue, 2),
];

fn function(name: &str) -> Option<(Place, usize)> {
    let found = FUNCTIONS.iter().find(|(known, ..)| *known == name);
    found.map(|(_, place, operands)| (*place, *operands))
}

pub(crate) fn is_known_function(name: &str) -> bool {
    function(name).is_some()
}

pub(crate) fn unknown_function(kind: ExpressionKind, name: &str) -> ExpressionError {
    kind.invalid(format_args!("Invalid function name; function: {name}"))
}

/// Returns the error of an expression with too many operators. DynamoDB stops counting at the first
/// operator beyond the maximum, so its message always reports the same count.
pub(crate) fn too_many_operators(kind: ExpressionKind) -> ExpressionError {
    kind.invalid(format_args!(
        "The expression contains too many operators; operator count: {}",
        EXPRESSION_OPERATORS_MAX + 1
    ))
}

/// Checks the number of operands of a function. Called while placeholders are resolved, not in this
/// pass.
pub(crate) fn check_operand_count(
    kind: ExpressionKind,
    call: &Call<'_>,
) -> Result<(), ExpressionError> {
    let given = call.arguments.len();
    if function(call.name).is_some_and(|(_, operands)| operands == given) {
        return Ok(());
    }
    Err(kind.invalid(format_args!(
        "Incorrect number of operands for operator or function; operator or function: {}, number of operands: {given}",
        call.name
    )))
}

/// Checks a condition, filter or key condition.
pub(crate) fn check_condition(
    kind: ExpressionKind,
    node: &Node<'_>,
) -> Result<(), ExpressionError> {
    Checker { kind, operators: 0 }.visit(node, Place::Condition)
}

/// Checks the paths of a projection.
pub(crate) fn check_projection(paths: &[Steps<'_>]) -> Result<(), ExpressionError> {
    let checker = Checker { kind: ExpressionKind::Projection, operators: 0 };
    paths.iter().try_for_each(|path| checker.visit_path(path))
}

/// Checks an update. The last check is that each section occurs only once, because DynamoDB reports
/// that error last.
pub(crate) fn check_update(update: &UpdateSyntax<'_>) -> Result<(), ExpressionError> {
    let kind = ExpressionKind::Update;
    let mut checker = Checker { kind, operators: 0 };
    for action in &update.actions {
        checker.visit_path(&action.path)?;
        if let Some(value) = &action.value {
            checker.visit(value, Place::UpdateValue)?;
        }
    }
    for (position, section) in update.sections.iter().enumerate() {
        if update.sections.iter().take(position).any(|earlier| earlier == section) {
            return Err(kind.invalid(format_args!(
                "The \"{}\" section can only be used once in an update expression;",
                section.text()
            )));
        }
    }
    Ok(())
}

struct Checker {
    kind: ExpressionKind,
    operators: usize,
}

impl Checker {
    fn visit(&mut self, node: &Node<'_>, place: Place) -> Result<(), ExpressionError> {
        match node {
            Node::And(members) | Node::Or(members) => {
                self.count(members.len().saturating_sub(1))?;
                members.iter().try_for_each(|member| self.visit(member, Place::Condition))
            }
            Node::Not { times, inner } => {
                self.count(*times)?;
                self.visit(inner, Place::Condition)
            }
            Node::Group(inner) => self.visit(inner, place),
            Node::Compare { left, right, .. } => {
                self.count(1)?;
                self.visit(left, Place::Operand)?;
                self.visit(right, Place::Operand)
            }
            Node::Between { operand, lower, upper } => {
                self.count(1)?;
                self.visit(operand, Place::Operand)?;
                self.visit(lower, Place::Operand)?;
                self.visit(upper, Place::Operand)
            }
            Node::In { operand, candidates } => {
                self.count(1)?;
                self.visit(operand, Place::Operand)?;
                candidates.iter().try_for_each(|member| self.visit(member, Place::Operand))
            }
            Node::Arithmetic { left, right, .. } => {
                self.count(1)?;
                self.visit(left, place)?;
                self.visit(right, place)
            }
            Node::Call(call) => self.visit_call(call, place),
            Node::Path(path) => self.visit_path(path),
            Node::Value(_) => Ok(()),
        }
    }

    fn visit_call(&mut self, call: &Call<'_>, place: Place) -> Result<(), ExpressionError> {
        let name = call.name;
        let Some((allowed, _)) = function(name) else {
            return Err(unknown_function(self.kind, name));
        };
        let in_update = self.kind == ExpressionKind::Update;
        let of_update = matches!(allowed, Place::UpdateOperand | Place::UpdateValue);
        let problem = match (in_update, of_update) {
            (true, false) => "The function is not allowed in an update expression",
            (false, true) => "The function is not allowed in a condition expression",
            (true, true) if place == Place::UpdateValue || allowed == Place::UpdateOperand => "",
            (false, false) if allowed == place => "",
            _ => "The function is not allowed to be used this way in an expression",
        };
        if !problem.is_empty() {
            return Err(self.kind.invalid(format_args!("{problem}; function: {name}")));
        }
        self.count(1)?;
        let inside = if in_update { Place::UpdateOperand } else { Place::Operand };
        call.arguments.iter().try_for_each(|argument| self.visit(argument, inside))
    }

    fn visit_path(&self, path: &Steps<'_>) -> Result<(), ExpressionError> {
        for step in &path.0 {
            match step {
                Step::Word(word) if is_reserved(word) => {
                    return Err(self.kind.invalid(format_args!(
                        "Attribute name is a reserved keyword; reserved keyword: {word}"
                    )));
                }
                Step::Index(digits) if list_index(digits).is_none() => {
                    return Err(self.kind.invalid(format_args!(
                        "List index is not within the allowable range; index: [{digits}]"
                    )));
                }
                Step::Word(_) | Step::Placeholder(_) | Step::Index(_) => {}
            }
        }
        Ok(())
    }

    fn count(&mut self, operators: usize) -> Result<(), ExpressionError> {
        self.operators += operators;
        if self.operators > EXPRESSION_OPERATORS_MAX {
            return Err(too_many_operators(self.kind));
        }
        Ok(())
    }
}

/// Returns the index for these digits; `None` beyond [`LIST_INDEX_MAX`].
pub(crate) fn list_index(digits: &str) -> Option<u32> {
    digits.parse().ok().filter(|index| *index <= LIST_INDEX_MAX)
}
