//! Applies updates according to the documentation, "Using update expressions in DynamoDB".

use model::{AttributeValue, Item, Number};

use super::condition::find;
use super::expression::{Action, Assigned, Path, Source, Step};

/// The error of an update that cannot be applied to the item.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid;

/// Returns the item after an update. All actions read the old item.
pub(super) fn updated(old: &Item, actions: &[Action]) -> Result<Item, Invalid> {
    let mut new = old.clone();
    for action in actions {
        match action {
            Action::Set(path, assigned) => set(&mut new, path, assigned_value(old, assigned)?)?,
            Action::Remove(path) => remove(&mut new, path)?,
            Action::Add(root, value) => add(&mut new, root, value)?,
            Action::Delete(root, value) => delete(&mut new, root, value)?,
        }
    }
    Ok(new)
}

/// Returns the item that an update creates from a key. Actions that only remove are skipped, because there is
/// nothing to remove. An update with only such actions creates no item (see `state`).
pub(super) fn created(key: &Item, actions: &[Action]) -> Result<Item, Invalid> {
    let others: Vec<Action> =
        actions.iter().filter(|action| !action.only_removes()).cloned().collect();
    updated(key, &others)
}

fn source_value(old: &Item, source: &Source) -> Result<AttributeValue, Invalid> {
    match source {
        Source::Path(path) => find(old, path).cloned().ok_or(Invalid),
        Source::Value(value) => Ok(value.clone()),
        Source::IfNotExists(path, value) => Ok(find(old, path).unwrap_or(value).clone()),
    }
}

fn source_number(old: &Item, source: &Source) -> Result<Number, Invalid> {
    match source_value(old, source)? {
        AttributeValue::N(number) => Ok(number),
        _ => Err(Invalid),
    }
}

fn source_list(old: &Item, source: &Source) -> Result<Vec<AttributeValue>, Invalid> {
    match source_value(old, source)? {
        AttributeValue::L(members) => Ok(members),
        _ => Err(Invalid),
    }
}

fn assigned_value(old: &Item, assigned: &Assigned) -> Result<AttributeValue, Invalid> {
    match assigned {
        Assigned::Plain(source) => source_value(old, source),
        Assigned::Sum(left, right) => {
            let (left, right) = (source_number(old, left)?, source_number(old, right)?);
            left.checked_add(right).map(AttributeValue::N).map_err(|_| Invalid)
        }
        Assigned::Difference(left, right) => {
            let (left, right) = (source_number(old, left)?, source_number(old, right)?);
            left.checked_sub(right).map(AttributeValue::N).map_err(|_| Invalid)
        }
        Assigned::Joined(left, right) => {
            let mut joined = source_list(old, left)?;
            joined.extend(source_list(old, right)?);
            Ok(AttributeValue::L(joined))
        }
    }
}

/// Returns the map or list that contains the value at a path, and the last step of the path. All earlier steps
/// must exist and have the right type.
fn parent<'i, 'p>(
    item: &'i mut Item,
    path: &'p Path,
) -> Result<(&'i mut AttributeValue, &'p Step), Invalid> {
    let (last, way) = path.steps.split_last().ok_or(Invalid)?;
    let mut found = item.0.get_mut(path.root).ok_or(Invalid)?;
    for step in way {
        found = match (step, found) {
            (Step::Member(name), AttributeValue::M(members)) => {
                members.get_mut(*name).ok_or(Invalid)?
            }
            (Step::Element(index), AttributeValue::L(members)) => {
                members.get_mut(*index).ok_or(Invalid)?
            }
            _ => return Err(Invalid),
        };
    }
    Ok((found, last))
}

fn set(item: &mut Item, path: &Path, value: AttributeValue) -> Result<(), Invalid> {
    if path.steps.is_empty() {
        item.0.insert(path.root.to_owned(), value);
        return Ok(());
    }
    match parent(item, path)? {
        (AttributeValue::M(members), Step::Member(name)) => {
            members.insert((*name).to_owned(), value);
        }
        (AttributeValue::L(members), Step::Element(index)) => match members.get_mut(*index) {
            Some(member) => *member = value,
            // If the position is beyond the end of the list, the value is appended.
            None => members.push(value),
        },
        _ => return Err(Invalid),
    }
    Ok(())
}

fn remove(item: &mut Item, path: &Path) -> Result<(), Invalid> {
    if path.steps.is_empty() {
        item.0.remove(path.root);
        return Ok(());
    }
    match parent(item, path)? {
        (AttributeValue::M(members), Step::Member(name)) => {
            members.remove(*name);
        }
        (AttributeValue::L(members), Step::Element(index)) => {
            if *index < members.len() {
                members.remove(*index);
            }
        }
        _ => return Err(Invalid),
    }
    Ok(())
}

fn add(item: &mut Item, root: &str, value: &AttributeValue) -> Result<(), Invalid> {
    let sum = match (item.0.get(root), value) {
        (None, value) => value.clone(),
        (Some(AttributeValue::N(old)), AttributeValue::N(more)) => {
            AttributeValue::N(old.checked_add(*more).map_err(|_| Invalid)?)
        }
        (Some(AttributeValue::Ss(old)), AttributeValue::Ss(more)) => {
            AttributeValue::Ss(old.union(more).cloned().collect())
        }
        (Some(AttributeValue::Ns(old)), AttributeValue::Ns(more)) => {
            AttributeValue::Ns(old.union(more).copied().collect())
        }
        (Some(AttributeValue::Bs(old)), AttributeValue::Bs(more)) => {
            AttributeValue::Bs(old.union(more).cloned().collect())
        }
        _ => return Err(Invalid),
    };
    item.0.insert(root.to_owned(), sum);
    Ok(())
}

fn delete(item: &mut Item, root: &str, value: &AttributeValue) -> Result<(), Invalid> {
    let (rest, is_empty) = match (item.0.get(root), value) {
        (None, _) => return Ok(()),
        (Some(AttributeValue::Ss(old)), AttributeValue::Ss(less)) => {
            let rest: std::collections::BTreeSet<_> = old.difference(less).cloned().collect();
            (AttributeValue::Ss(rest.clone()), rest.is_empty())
        }
        (Some(AttributeValue::Ns(old)), AttributeValue::Ns(less)) => {
            let rest: std::collections::BTreeSet<_> = old.difference(less).copied().collect();
            (AttributeValue::Ns(rest.clone()), rest.is_empty())
        }
        (Some(AttributeValue::Bs(old)), AttributeValue::Bs(less)) => {
            let rest: std::collections::BTreeSet<_> = old.difference(less).cloned().collect();
            (AttributeValue::Bs(rest.clone()), rest.is_empty())
        }
        _ => return Err(Invalid),
    };
    // DynamoDB has no empty sets, so an empty set is removed.
    if is_empty {
        item.0.remove(root);
    } else {
        item.0.insert(root.to_owned(), rest);
    }
    Ok(())
}
