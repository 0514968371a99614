//! How an entry says its commands. A request that writes many items mostly asks the same of each: what
//! a write has in common with the one before it is said once.
//!
//! What the bytes of all that look like is postcard's, and what commands do is in the machine.

use std::borrow::Cow;

use expression::OtherValues;
use model::{KeyValue, PrimaryKey};
use serde::{Deserialize, Serialize};

use crate::command::{Command, Write, WriteAction};
use crate::mutation::{self, Mutation};

/// A command in an entry.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Said<'c> {
    /// As it is.
    Whole(Cow<'c, Command>),
    /// The last write that was said as it is, but of another item, and with other values in its
    /// condition.
    Alike {
        /// Which item.
        key: Cow<'c, PrimaryKey>,
        /// The values that are others.
        values: OtherValues,
    },
}

impl<'c> Said<'c> {
    /// A command, said by what it has beside the last write that was said as it is.
    pub(crate) fn beside(command: &'c Command, model: Option<&Write>) -> Self {
        let alike = match (command, model) {
            (Command::Write(write), Some(model)) => alike(write, model),
            _ => None,
        };
        alike.unwrap_or(Self::Whole(Cow::Borrowed(command)))
    }
}

/// A write that does to its item what another one does to another. Items that are put are mostly not
/// the same.
fn alike<'c>(write: &'c Write, model: &Write) -> Option<Said<'c>> {
    let is_same_action = match (&write.action, &model.action) {
        (WriteAction::Update(update), WriteAction::Update(other)) => update.is_same(other),
        (WriteAction::Delete, WriteAction::Delete) | (WriteAction::Check, WriteAction::Check) => {
            true
        }
        _ => false,
    };
    let flags = |write: &Write| (write.return_old, write.return_new, write.return_on_failure);
    if !is_same_action || write.table != model.table || flags(write) != flags(model) {
        return None;
    }
    let values = match (&write.condition, &model.condition) {
        (Some(condition), Some(other)) => condition.values_beside(other)?,
        (None, None) => OtherValues::default(),
        _ => return None,
    };
    Some(Said::Alike { key: Cow::Borrowed(&write.key), values })
}

/// The commands that an entry says. `None` if one is to be like a write that is not there.
pub(crate) fn commands_of(said: Vec<Said<'_>>) -> Option<Vec<Command>> {
    let mut commands = Vec::with_capacity(said.len());
    let mut model = None;
    for said in said {
        let command = match said {
            Said::Whole(command) => {
                if matches!(*command, Command::Write(_)) {
                    model = Some(commands.len());
                }
                command.into_owned()
            }
            Said::Alike { key, values } => match commands.get(model?)? {
                Command::Write(model) => Command::Write(Box::new(like(model, key, values))),
                _ => return None,
            },
        };
        commands.push(command);
    }
    Some(commands)
}

/// What a command counts that is like a model: as many bytes as it would take, were it said as it is,
/// about. The model counts `of_model`, and it takes `bytes` as it is said.
pub(crate) fn count_alike(
    model: &Write,
    of_model: usize,
    values: &OtherValues,
    bytes: usize,
) -> usize {
    let condition = model.condition.as_ref();
    let replaced = condition.map_or(0, |condition| condition.size_replaced(values));
    let key = model.key.partition.size() + model.key.sort.as_ref().map_or(0, KeyValue::size);
    of_model.saturating_sub(replaced + key) + bytes
}

fn like(model: &Write, key: Cow<'_, PrimaryKey>, values: OtherValues) -> Write {
    let condition = model.condition.as_ref();
    let is_whole = mutation::is_active(Mutation::ConditionOfModel);
    let values = if is_whole { OtherValues::default() } else { values };
    Write {
        table: model.table,
        key: key.into_owned(),
        action: model.action.clone(),
        condition: condition.map(|condition| Box::new(condition.with_values(values))),
        return_old: model.return_old,
        return_new: model.return_new,
        return_on_failure: model.return_on_failure,
    }
}
