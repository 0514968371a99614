//! Delta encoding of a log entry's commands.
//!
//! A request that writes many items usually applies the same operation to each of them. The base of
//! a write is the last write that was stored in full. A write that differs from its base only in
//! its item and in values of its condition is stored as a delta. The bytes are in the postcard
//! format; The module `machine` applies the commands.

use std::borrow::Cow;

use expression::OtherValues;
use model::{KeyValue, PrimaryKey};
use serde::{Deserialize, Serialize};

use crate::command::{Command, Write, WriteAction};
use crate::mutation::{self, Mutation};

/// A command in the form in which an entry stores it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum CommandEncoding<'c> {
    /// The command itself.
    Whole(Cow<'c, Command>),
    /// A write that differs from its base only in its item and in values of its condition.
    Delta {
        /// The key of the item.
        key: Cow<'c, PrimaryKey>,
        /// The values that differ.
        values: OtherValues,
    },
}

impl<'c> CommandEncoding<'c> {
    /// Encodes a command as a delta to its base `model`, the last write that was stored in full.
    /// Encodes it in full if a delta cannot express the difference.
    pub(crate) fn relative_to(command: &'c Command, model: Option<&Write>) -> Self {
        let delta = match (command, model) {
            (Command::Write(write), Some(model)) => delta(write, model),
            _ => None,
        };
        delta.unwrap_or(Self::Whole(Cow::Borrowed(command)))
    }
}

/// Returns a write as a delta to another write; `None` if their operations differ. A put is never a
/// delta, because puts rarely store equal items.
fn delta<'c>(write: &'c Write, model: &Write) -> Option<CommandEncoding<'c>> {
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
    Some(CommandEncoding::Delta { key: Cow::Borrowed(&write.key), values })
}

/// Decodes the commands of an entry. Returns `None` if a delta has no base before it.
pub(crate) fn decode_commands(encodings: Vec<CommandEncoding<'_>>) -> Option<Vec<Command>> {
    let mut commands = Vec::with_capacity(encodings.len());
    let mut model = None;
    for encoding in encodings {
        let command = match encoding {
            CommandEncoding::Whole(command) => {
                if matches!(*command, Command::Write(_)) {
                    model = Some(commands.len());
                }
                command.into_owned()
            }
            CommandEncoding::Delta { key, values } => match commands.get(model?)? {
                Command::Write(model) => Command::Write(Box::new(apply_delta(model, key, values))),
                _ => return None,
            },
        };
        commands.push(command);
    }
    Some(commands)
}

/// Estimates the size that a delta's command would have if it were stored in full. `of_model` is
/// the size of the base, and `bytes` is the size of the delta, both in bytes.
pub(crate) fn count_delta(
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

fn apply_delta(model: &Write, key: Cow<'_, PrimaryKey>, values: OtherValues) -> Write {
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
