//! Updates: the application of an update expression to an item.
//!
//! Every value is read from the item before the update, and every list index is a position in the
//! list before the update. The server uses [`Update::touched`] to reject updates of key attributes.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use model::limits::{ITEM_BYTES_MAX, NESTING_LEVELS_MAX};
use model::number::NumberError;
use model::{AttributeValue, Item, Number};
use serde::{Deserialize, Serialize};

use crate::error::UpdateError;
use crate::path::{Path, PathElement};
use crate::projection::Projection;
use crate::value_table::ValueIndex;

/// An update with resolved names and values, ready to be stored and applied. The default, for a
/// request without an update expression, changes nothing. Clones share the contents, so that all
/// writes of a statement have one copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Update(Arc<Changes>);

/// The contents of an update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Changes {
    values: Vec<AttributeValue>,
    actions: Vec<Action>,
    /// Whether the update comes from the legacy parameter `AttributeUpdates`, which has its own
    /// error messages.
    is_legacy: bool,
}

/// The change of one path. The paths of an update do not overlap: no path equals another path or is
/// a prefix of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Action {
    Set { path: Path, value: SetValue },
    Remove { path: Path },
    Add { path: Path, value: ValueIndex },
    Delete { path: Path, value: ValueIndex },
}

/// The right-hand side of `SET`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum SetValue {
    Operand(SetOperand),
    Sum(SetOperand, SetOperand),
    Difference(SetOperand, SetOperand),
}

/// The source of a value to be set. The parser limits the depth of nested operands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum SetOperand {
    Path(Path),
    Value(ValueIndex),
    IfNotExists { path: Path, default: Box<SetOperand> },
    ListAppend { first: Box<SetOperand>, second: Box<SetOperand> },
}

impl Action {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Set { path, .. }
            | Self::Remove { path }
            | Self::Add { path, .. }
            | Self::Delete { path, .. } => path,
        }
    }
}

impl SetValue {
    fn collect_paths<'a>(&'a self, paths: &mut Vec<&'a Path>) {
        match self {
            Self::Operand(operand) => operand.collect_paths(paths),
            Self::Sum(left, right) | Self::Difference(left, right) => {
                [left, right].into_iter().for_each(|operand| operand.collect_paths(paths));
            }
        }
    }
}

impl SetOperand {
    fn collect_paths<'a>(&'a self, paths: &mut Vec<&'a Path>) {
        match self {
            Self::Path(path) => paths.push(path),
            Self::Value(_) => {}
            Self::IfNotExists { path, default } => {
                paths.push(path);
                default.collect_paths(paths);
            }
            Self::ListAppend { first, second } => {
                first.collect_paths(paths);
                second.collect_paths(paths);
            }
        }
    }
}

/// A pending change of the item, whose value is already computed.
enum Write<'a> {
    Put(&'a Path, AttributeValue),
    Remove(&'a Path),
    Nothing,
}

impl Update {
    /// Creates an update. `is_legacy` is true for `AttributeUpdates`.
    pub(crate) fn new(actions: Vec<Action>, values: Vec<AttributeValue>, is_legacy: bool) -> Self {
        Self(Arc::new(Changes { values, actions, is_legacy }))
    }

    pub(crate) fn actions(&self) -> &[Action] {
        &self.0.actions
    }

    pub(crate) fn values(&self) -> &[AttributeValue] {
        &self.0.values
    }

    pub(crate) fn is_legacy(&self) -> bool {
        self.0.is_legacy
    }

    /// Returns the item after the update. For an item that does not exist, use
    /// [`Update::apply_to_missing`].
    ///
    /// # Errors
    /// When an attribute that the update reads is missing or has a wrong type. Also when a result
    /// is not a valid number, is nested too deeply, or is larger than an item may be. The caller
    /// checks that the entire item has at most 400 KB.
    pub fn apply(&self, item: &Item) -> Result<Item, UpdateError> {
        self.apply_to(item, true).map_err(|error| self.in_its_words(error))
    }

    /// Returns the item that the update creates from its key attributes. Unlike [`Update::apply`],
    /// accepts `REMOVE` of a nested path whose parent is missing, as DynamoDB does.
    ///
    /// # Errors
    /// See [`Update::apply`].
    pub fn apply_to_missing(&self, key: &Item) -> Result<Item, UpdateError> {
        self.apply_to(key, false).map_err(|error| self.in_its_words(error))
    }

    fn in_its_words(&self, error: UpdateError) -> UpdateError {
        match error {
            UpdateError::IncorrectType if self.0.is_legacy => UpdateError::TypeMismatch,
            other => other,
        }
    }

    /// Returns whether both updates are equal. The check is fast if they share their contents.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self == other
    }

    /// Returns whether the update creates the item if it does not exist. An update that only
    /// removes attributes creates no item. An update without actions creates an item that has only
    /// its key.
    #[must_use]
    pub fn creates_item(&self) -> bool {
        let creates = |action: &Action| matches!(action, Action::Set { .. } | Action::Add { .. });
        self.0.actions.is_empty() || self.0.actions.iter().any(creates)
    }

    /// Returns the paths that the update changes, in the order of the expression.
    pub fn touched(&self) -> impl Iterator<Item = &Path> {
        self.0.actions.iter().map(Action::path)
    }

    /// Returns whether the update sets the attribute to a computed value, which the request does
    /// not contain: another attribute, a sum, or the result of a function.
    #[must_use]
    pub fn computes(&self, attribute: &str) -> bool {
        self.0.actions.iter().any(|action| match action {
            Action::Set { path, value } => {
                let is_value = matches!(value, SetValue::Operand(SetOperand::Value(_)));
                path.root() == attribute && !is_value
            }
            Action::Remove { .. } | Action::Add { .. } | Action::Delete { .. } => false,
        })
    }

    /// Returns every path that the update reads or changes.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let mut paths: Vec<&Path> = self.touched().collect();
        for action in &self.0.actions {
            if let Action::Set { value, .. } = action {
                value.collect_paths(&mut paths);
            }
        }
        paths.into_iter()
    }

    /// Returns the values of `item` at exactly the changed paths. Pass the old item for
    /// `UPDATED_OLD` and the new item for `UPDATED_NEW`. A list index is a position in the list of
    /// `item`, so an element that was appended beyond the end is absent, as in DynamoDB.
    #[must_use]
    pub fn updated_attributes(&self, item: &Item) -> Item {
        Projection::of(self.touched()).apply(item)
    }

    fn apply_to(&self, item: &Item, exists: bool) -> Result<Item, UpdateError> {
        let wrong_parent = |action: &Action| {
            let path = action.path();
            path.find_parent(item).is_some_and(|parent| !accepts(parent, path.below()))
        };
        if self.0.actions.iter().any(wrong_parent) {
            return Err(UpdateError::InvalidPath);
        }
        let mut writes = Vec::with_capacity(self.0.actions.len());
        let mut written_bytes = 0;
        let mut failure = None;
        for action in &self.0.actions {
            match self.write_of(action, item, exists) {
                Ok(Write::Put(path, value)) => {
                    written_bytes += value.size();
                    if written_bytes > ITEM_BYTES_MAX {
                        return Err(UpdateError::TooLarge);
                    }
                    writes.push(Write::Put(path, value));
                }
                Ok(write) => writes.push(write),
                // This error is returned immediately, because it takes precedence over the errors
                // of later actions.
                Err(UpdateError::TooLarge) => return Err(UpdateError::TooLarge),
                Err(error) if precedence(&error) == 0 => return Err(error),
                Err(error) => failure = more_urgent(failure, error),
            }
        }
        failure.map_or_else(|| Ok(perform(writes, item)), Err)
    }

    fn write_of<'a>(
        &'a self,
        action: &'a Action,
        item: &Item,
        exists: bool,
    ) -> Result<Write<'a>, UpdateError> {
        let path = action.path();
        let old = path.find(item);
        let parent_missing = path.is_nested() && path.find_parent(item).is_none();
        let write = match action {
            Action::Remove { .. } if parent_missing && exists => {
                return Err(UpdateError::InvalidPath);
            }
            Action::Remove { .. } if old.is_some() => Write::Remove(path),
            Action::Remove { .. } => Write::Nothing,
            Action::Set { value, .. } => {
                let value = self.set_value(value, item);
                // If the operand has a wrong type and the parent is missing, DynamoDB reports the
                // wrong type.
                if parent_missing && value != Err(UpdateError::IncorrectType) {
                    return Err(UpdateError::InvalidPath);
                }
                Write::Put(path, value?)
            }
            _ if parent_missing => return Err(UpdateError::InvalidPath),
            Action::Add { value, .. } => Write::Put(path, added(old, value.of(&self.0.values))?),
            Action::Delete { value, .. } => match old {
                Some(old) => match without(old, value.of(&self.0.values))? {
                    Some(rest) => Write::Put(path, rest),
                    None => Write::Remove(path),
                },
                None => Write::Nothing,
            },
        };
        match &write {
            Write::Put(path, value)
                if path.below().len() + value.nesting_levels() > NESTING_LEVELS_MAX =>
            {
                Err(UpdateError::TooDeep)
            }
            _ => Ok(write),
        }
    }

    fn set_value(&self, value: &SetValue, item: &Item) -> Result<AttributeValue, UpdateError> {
        let number = |operand: &SetOperand| match self.operand(operand, item)? {
            OperandValue::Value(value) => value.as_number().ok_or(UpdateError::IncorrectType),
            OperandValue::Appended { .. } => Err(UpdateError::IncorrectType),
        };
        match value {
            SetValue::Operand(operand) => Ok(self.operand(operand, item)?.into_value()),
            SetValue::Sum(left, right) => {
                Ok(AttributeValue::N(sum(number(left)?, number(right)?)?))
            }
            SetValue::Difference(left, right) => {
                Ok(AttributeValue::N(difference(number(left)?, number(right)?)?))
            }
        }
    }

    fn operand<'a>(
        &'a self,
        operand: &'a SetOperand,
        item: &'a Item,
    ) -> Result<OperandValue<'a>, UpdateError> {
        match operand {
            SetOperand::Path(path) => {
                path.find(item).map(OperandValue::Value).ok_or(UpdateError::MissingAttribute)
            }
            SetOperand::Value(index) => Ok(OperandValue::Value(index.of(&self.0.values))),
            SetOperand::IfNotExists { path, default } => match path.find(item) {
                Some(value) => Ok(OperandValue::Value(value)),
                None => self.operand(default, item),
            },
            SetOperand::ListAppend { first, second } => {
                let first = self.operand(first, item)?;
                let second = self.operand(second, item)?;
                first.append(second)
            }
        }
    }
}

/// The value of an operand. Lists are copied only after their total size was checked. A statement
/// may nest `list_append` hundreds of times, and each call may double its input.
enum OperandValue<'a> {
    Value(&'a AttributeValue),
    /// The lists to be concatenated, in order, and their total size.
    Appended {
        parts: Vec<&'a [AttributeValue]>,
        bytes: usize,
    },
}

impl<'a> OperandValue<'a> {
    fn into_value(self) -> AttributeValue {
        match self {
            Self::Value(value) => value.clone(),
            Self::Appended { parts, .. } => AttributeValue::L(parts.concat()),
        }
    }

    fn append(self, other: Self) -> Result<Self, UpdateError> {
        let (mut parts, first_bytes) = self.into_parts()?;
        let (behind, second_bytes) = other.into_parts()?;
        parts.extend(behind);
        let empty_bytes = AttributeValue::L(Vec::new()).size();
        let bytes = (first_bytes + second_bytes).saturating_sub(empty_bytes);
        // No part of a new value may exceed the item size limit.
        if bytes > ITEM_BYTES_MAX {
            return Err(UpdateError::TooLarge);
        }
        Ok(Self::Appended { parts, bytes })
    }

    /// Returns the lists whose concatenation is the value, and their total size.
    fn into_parts(self) -> Result<(Vec<&'a [AttributeValue]>, usize), UpdateError> {
        match self {
            Self::Value(list @ AttributeValue::L(elements)) => Ok((vec![elements], list.size())),
            Self::Value(_) => Err(UpdateError::IncorrectType),
            Self::Appended { parts, bytes } => Ok((parts, bytes)),
        }
    }
}

/// Returns the precedence of an error. If there are several errors, DynamoDB reports the one with
/// the lowest number.
fn precedence(error: &UpdateError) -> u8 {
    match error {
        UpdateError::IncorrectType | UpdateError::TypeMismatch => 0,
        UpdateError::InvalidPath => 1,
        UpdateError::MissingAttribute => 2,
        UpdateError::Number(_) => 3,
        UpdateError::TooDeep | UpdateError::TooLarge => 4,
    }
}

fn more_urgent(earlier: Option<UpdateError>, later: UpdateError) -> Option<UpdateError> {
    match earlier {
        Some(earlier) if precedence(&earlier) <= precedence(&later) => Some(earlier),
        _ => Some(later),
    }
}

/// Returns whether a map or list can contain the last step of a path.
fn accepts(parent: &AttributeValue, below: &[PathElement]) -> bool {
    match (parent, below.last()) {
        (AttributeValue::M(_), Some(PathElement::Member(_)))
        | (AttributeValue::L(_), Some(PathElement::Index(_))) => true,
        (_, last) => last.is_none(),
    }
}

fn sum(left: Number, right: Number) -> Result<Number, NumberError> {
    left.checked_add(right).map_err(as_overflow)
}

fn difference(left: Number, right: Number) -> Result<Number, NumberError> {
    left.checked_sub(right).map_err(as_overflow)
}

/// Converts the error for a number with too many digits into the error for a number that is too
/// large.
fn as_overflow(error: NumberError) -> NumberError {
    match error {
        NumberError::TooPrecise => NumberError::Overflow,
        other => other,
    }
}

/// Applies `ADD`: a sum, or the union of two sets of one type.
fn added(
    old: Option<&AttributeValue>,
    value: &AttributeValue,
) -> Result<AttributeValue, UpdateError> {
    fn union<T: Clone + Ord>(old: &BTreeSet<T>, new: &BTreeSet<T>) -> BTreeSet<T> {
        old.union(new).cloned().collect()
    }
    let Some(old) = old else { return Ok(value.clone()) };
    match (old, value) {
        (AttributeValue::N(old), AttributeValue::N(value)) => {
            Ok(AttributeValue::N(sum(*old, *value)?))
        }
        (AttributeValue::Ss(old), AttributeValue::Ss(new)) => {
            Ok(AttributeValue::Ss(union(old, new)))
        }
        (AttributeValue::Ns(old), AttributeValue::Ns(new)) => {
            Ok(AttributeValue::Ns(union(old, new)))
        }
        (AttributeValue::Bs(old), AttributeValue::Bs(new)) => {
            Ok(AttributeValue::Bs(union(old, new)))
        }
        _ => Err(UpdateError::IncorrectType),
    }
}

/// Applies `DELETE`: removes members from a set. Returns `None` if no member remains, because a set
/// cannot be empty.
fn without(
    old: &AttributeValue,
    value: &AttributeValue,
) -> Result<Option<AttributeValue>, UpdateError> {
    fn rest<T: Clone + Ord>(old: &BTreeSet<T>, gone: &BTreeSet<T>) -> Option<BTreeSet<T>> {
        let rest: BTreeSet<T> = old.difference(gone).cloned().collect();
        Some(rest).filter(|rest| !rest.is_empty())
    }
    match (old, value) {
        (AttributeValue::Ss(old), AttributeValue::Ss(gone)) => {
            Ok(rest(old, gone).map(AttributeValue::Ss))
        }
        (AttributeValue::Ns(old), AttributeValue::Ns(gone)) => {
            Ok(rest(old, gone).map(AttributeValue::Ns))
        }
        (AttributeValue::Bs(old), AttributeValue::Bs(gone)) => {
            Ok(rest(old, gone).map(AttributeValue::Bs))
        }
        _ => Err(UpdateError::IncorrectType),
    }
}

/// Applies all writes to a copy of the item. Replacements come first, then elements beyond the ends
/// of lists in the order of their indexes, then removals from the end of each list. In this order,
/// every index is a position in the old list.
fn perform(writes: Vec<Write<'_>>, item: &Item) -> Item {
    let mut result = item.clone();
    let mut appended = Vec::new();
    let mut removed = Vec::new();
    for write in writes {
        match write {
            Write::Put(path, value) => {
                if let Err(value) = put(&mut result, path, value) {
                    appended.push((path, value));
                }
            }
            Write::Remove(path) => removed.push(path),
            Write::Nothing => {}
        }
    }
    appended.sort_by_key(|(path, _)| *path);
    for (path, value) in appended {
        if let Some((AttributeValue::L(elements), _)) = path.find_parent_mut(&mut result) {
            elements.push(value);
        }
    }
    removed.sort_by_key(|path| Reverse(*path));
    for path in removed {
        remove(&mut result, path);
    }
    result
}

/// Stores a value at a path. If the path's list index is beyond the end of the list, returns the
/// value as an error.
fn put(item: &mut Item, path: &Path, value: AttributeValue) -> Result<(), AttributeValue> {
    if !path.is_nested() {
        item.insert(path.root().to_owned(), value);
        return Ok(());
    }
    match path.find_parent_mut(item) {
        Some((AttributeValue::M(members), PathElement::Member(name))) => {
            members.insert(name.clone(), value);
            Ok(())
        }
        Some((AttributeValue::L(elements), PathElement::Index(index))) => {
            let position = usize::try_from(*index).unwrap_or(usize::MAX);
            match elements.get_mut(position) {
                Some(element) => {
                    *element = value;
                    Ok(())
                }
                None => Err(value),
            }
        }
        _ => Err(value),
    }
}

fn remove(item: &mut Item, path: &Path) {
    if !path.is_nested() {
        item.remove(path.root());
        return;
    }
    match path.find_parent_mut(item) {
        Some((AttributeValue::M(members), PathElement::Member(name))) => {
            members.remove(name);
        }
        Some((AttributeValue::L(elements), PathElement::Index(index))) => {
            let position = usize::try_from(*index).unwrap_or(usize::MAX);
            if position < elements.len() {
                elements.remove(position);
            }
        }
        _ => {}
    }
}
