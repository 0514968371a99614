//! The conversion of an update expression's syntax to an update, with checks in DynamoDB's order.
//!
//! `update` applies the update to an item.

use model::{AttributeType, AttributeValue};

use crate::check::{check_operand_count, check_update};
use crate::error::{ExpressionError, ExpressionKind};
use crate::parser;
use crate::path::{Path, check_distinct};
use crate::placeholders::Placeholders;
use crate::resolve::Resolver;
use crate::syntax::{self, Call, Node, Section};
use crate::update::{Action, SetOperand, SetValue, Update};
use crate::value_table::ValueIndex;

/// The parameter that error messages name.
const KIND: ExpressionKind = ExpressionKind::Update;

/// Parses an update expression.
///
/// # Errors
/// The first error that DynamoDB would report, with its message.
pub fn parse_update(
    text: &str,
    placeholders: &mut Placeholders,
) -> Result<Update, ExpressionError> {
    let syntax = parser::parse_update(text)?;
    check_update(&syntax)?;
    let mut resolver = Resolver::new(KIND, placeholders);
    let paths: Vec<Path> = syntax
        .actions
        .iter()
        .map(|action| resolver.path(&action.path))
        .collect::<Result<_, _>>()?;
    check_distinct(KIND, &paths.iter().collect::<Vec<_>>())?;
    // DynamoDB checks the actions from the last to the first: all names, then all values.
    for value in syntax.actions.iter().rev().filter_map(|action| action.value.as_ref()) {
        check_names(&mut resolver, value)?;
    }
    let mut actions = Vec::with_capacity(syntax.actions.len());
    for (action, path) in syntax.actions.iter().zip(paths).rev() {
        actions.push(resolve_action(&mut resolver, action, path)?);
    }
    actions.reverse();
    Ok(Update::new(actions, resolver.into_values(), false))
}

fn check_names<'text>(
    resolver: &mut Resolver<'_, 'text>,
    node: &Node<'text>,
) -> Result<(), ExpressionError> {
    match node.unwrapped() {
        Node::Path(steps) => resolver.check_names(steps),
        Node::Call(call) => {
            call.arguments.iter().try_for_each(|argument| check_names(resolver, argument))
        }
        Node::Arithmetic { left, right, .. } => {
            check_names(resolver, left)?;
            check_names(resolver, right)
        }
        _ => Ok(()),
    }
}

fn resolve_action<'text>(
    resolver: &mut Resolver<'_, 'text>,
    action: &syntax::Action<'text>,
    path: Path,
) -> Result<Action, ExpressionError> {
    match (action.section, &action.value) {
        (Section::Remove, _) => Ok(Action::Remove { path }),
        (Section::Set, Some(value)) => {
            Ok(Action::Set { path, value: resolve_set_value(resolver, value)? })
        }
        (Section::Add, Some(Node::Value(placeholder))) => {
            let value = resolver.value(placeholder)?;
            check_addend(action.section, resolver.value_of(value))?;
            Ok(Action::Add { path, value })
        }
        (Section::Delete, Some(Node::Value(placeholder))) => {
            let value = resolver.value(placeholder)?;
            check_addend(action.section, resolver.value_of(value))?;
            Ok(Action::Delete { path, value })
        }
        _ => Err(resolver.misplaced()),
    }
}

/// Checks the operand of `ADD` (a number or set) or of `DELETE` (a set). In both cases, DynamoDB's
/// message contains the type set of `ADD`.
fn check_addend(section: Section, value: &AttributeValue) -> Result<(), ExpressionError> {
    let name = match value.attribute_type() {
        AttributeType::Ss | AttributeType::Ns | AttributeType::Bs => return Ok(()),
        AttributeType::N if section == Section::Add => return Ok(()),
        AttributeType::S => "STRING",
        AttributeType::N => "NUMBER",
        AttributeType::B => "BINARY",
        AttributeType::Bool => "BOOL",
        AttributeType::Null => "NULL",
        AttributeType::M => "MAP",
        AttributeType::L => "LIST",
    };
    Err(KIND.invalid(format_args!(
        "Incorrect operand type for operator or function; operator: {}, operand type: {name}, typeSet: ALLOWED_FOR_ADD_OPERAND",
        section.text()
    )))
}

fn resolve_set_value<'text>(
    resolver: &mut Resolver<'_, 'text>,
    node: &Node<'text>,
) -> Result<SetValue, ExpressionError> {
    let Node::Arithmetic { subtract, left, right } = node.unwrapped() else {
        return Ok(SetValue::Operand(resolve_operand(resolver, node)?));
    };
    let (left, right) = (resolve_operand(resolver, left)?, resolve_operand(resolver, right)?);
    let operator = if *subtract { "-" } else { "+" };
    check_static_types(resolver, operator, [&left, &right], AttributeType::N)?;
    Ok(if *subtract { SetValue::Difference(left, right) } else { SetValue::Sum(left, right) })
}

fn resolve_operand<'text>(
    resolver: &mut Resolver<'_, 'text>,
    node: &Node<'text>,
) -> Result<SetOperand, ExpressionError> {
    match node.unwrapped() {
        Node::Path(steps) => Ok(SetOperand::Path(resolver.path(steps)?)),
        Node::Value(placeholder) => Ok(SetOperand::Value(resolver.value(placeholder)?)),
        Node::Call(call) => resolve_call(resolver, call),
        _ => Err(resolver.misplaced()),
    }
}

fn resolve_call<'text>(
    resolver: &mut Resolver<'_, 'text>,
    call: &Call<'text>,
) -> Result<SetOperand, ExpressionError> {
    check_operand_count(KIND, call)?;
    let [first, second] = call.arguments.as_slice() else {
        return Err(resolver.misplaced());
    };
    let (first, second) = (resolve_operand(resolver, first)?, resolve_operand(resolver, second)?);
    if call.name == "list_append" {
        check_static_types(resolver, call.name, [&first, &second], AttributeType::L)?;
        return Ok(SetOperand::ListAppend { first: Box::new(first), second: Box::new(second) });
    }
    match first {
        SetOperand::Path(path) => {
            if second == SetOperand::Path(path.clone()) {
                return Err(KIND.invalid(format_args!(
                    "The first operand must be distinct from the remaining operands for this operator or function; operator: {}, first operand: {path}",
                    call.name
                )));
            }
            Ok(SetOperand::IfNotExists { path, default: Box::new(second) })
        }
        _ => Err(resolver.path_required(call.name)),
    }
}

/// Checks the types of values that are known without an item.
fn check_static_types(
    resolver: &Resolver<'_, '_>,
    operator: &str,
    operands: [&SetOperand; 2],
    needed: AttributeType,
) -> Result<(), ExpressionError> {
    let static_type = |index: &ValueIndex| resolver.value_of(*index).attribute_type();
    for operand in operands {
        if let SetOperand::Value(index) = operand
            && static_type(index) != needed
        {
            return Err(resolver.incorrect_type(operator, static_type(index).descriptor()));
        }
    }
    Ok(())
}
