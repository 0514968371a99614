//! Findings of access patterns.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use template::diagnostic::{counted, listed, similar};

use crate::command::{Action, Command, Operation, attributes, updated};
use crate::data_model::{AccessPattern, DataModel, Place, key_names};
use crate::estimate::{Sizes, tried, units};
use crate::findings::{
    CHANGING_KEY, Context, FILTER, NARROW_PROJECTION, NO_ITEMS, REFUSED, SCAN, UNANSWERED,
    UNKNOWN_ATTRIBUTE,
};
use crate::trial::Outcome;

/// Checks each access pattern.
pub(super) fn check(context: &Context<'_>) {
    for (at, pattern) in context.model.patterns.iter().enumerate() {
        if pattern.command.is_none() && pattern.reason.is_none() {
            context.report(
                UNANSWERED,
                &pattern.accept,
                context.model.place(&Place::Pattern(at)),
                format!("no operation answers the pattern `{}`", pattern.pattern),
                "add `implementation` with a command, or `reason` if another service answers it",
            );
        }
    }
    for (at, pattern, command, outcome) in tried(context.model, context.trial) {
        let one = Tried { context, at, pattern, command, outcome };
        one.unknown_attributes();
        let is_narrow = one.narrow_projection();
        match &outcome.refusal {
            Some(_) if is_narrow => {}
            Some(error) => one.report(
                REFUSED,
                format!("the store refuses the pattern `{}`: {error}", pattern.pattern),
                "correct the command, or the tables and items that it needs",
            ),
            None => {
                one.answer();
                one.changing_keys();
            }
        }
    }
}

/// An access pattern and its outcome.
struct Tried<'c> {
    context: &'c Context<'c>,
    at: usize,
    pattern: &'c AccessPattern,
    command: &'c Command,
    outcome: &'c Outcome,
}

impl Tried<'_> {
    fn report(&self, check: &'static str, message: String, help: &str) {
        let at = self.context.model.place(&Place::Command(self.at));
        self.context.report(check, &self.pattern.accept, at, message, help);
    }

    /// Reports how the answer was found.
    fn answer(&self) {
        let Outcome { read, returned, .. } = *self.outcome;
        let name = &self.pattern.pattern;
        let is_scan = self.command.operation == Operation::Scan;
        if is_scan {
            self.report(
                SCAN,
                format!("the pattern `{name}` scans: it reads, and pays for, every item"),
                "answer it by a Query, with a key or an index for it; accept `scan` for an export or a small table",
            );
        }
        let is_filtered = self.command.request.contains_key("FilterExpression");
        if is_filtered && read >= 2 && returned * 2 < read {
            let percent = (read - returned) * 100 / read;
            self.report(
                FILTER,
                format!("the pattern `{name}` reads {read} items and returns {returned}: the filter discards {percent} % of what is paid for"),
                "make the attribute of the filter a part of a key, or of a sparse index",
            );
        }
        if self.command.operation.is_read() && read == 0 {
            self.report(
                NO_ITEMS,
                format!("the pattern `{name}` finds none of the example items"),
                "correct its key values, or add an item that it finds",
            );
        }
    }

    /// Reports attributes that a read names and no item has, if another name was probably meant.
    fn unknown_attributes(&self) {
        if !self.command.operation.is_read() {
            return;
        }
        for Action { table, parameters } in self.command.actions() {
            let known = known_attributes(self.context.model, table);
            let found = attributes(parameters);
            let named = found.returned.into_iter().flatten().chain(found.filtered);
            for name in named.collect::<BTreeSet<_>>().difference(&known) {
                if let Some(meant) = similar(name, known.iter().map(String::as_str)) {
                    self.report(
                        UNKNOWN_ATTRIBUTE,
                        format!(
                            "no item has the attribute `{name}`, which the pattern `{}` reads",
                            self.pattern.pattern
                        ),
                        &format!("did you mean `{meant}`?"),
                    );
                }
            }
        }
    }

    /// Reports attributes that a read needs and its index lacks. Returns true if there are any.
    fn narrow_projection(&self) -> bool {
        let table = self.command.tables().first().and_then(|name| self.context.model.table(name));
        let Some((_, table)) = table else { return false };
        let Some(index) = self.command.index().and_then(|name| table.index(name)) else {
            return false;
        };
        let (shape, key) = (table.shape(index), table.key());
        let found = attributes(&self.command.request);
        let wanted = found.returned.into_iter().flatten().chain(found.filtered);
        let missing: Vec<String> = wanted.filter(|name| !shape.contains(&key, name)).collect();
        if missing.is_empty() {
            return false;
        }
        let is_local = table.local_secondary_indexes.contains(index);
        let effect = match is_local {
            true => "each item is read from the table too",
            false => "DynamoDB refuses it",
        };
        self.report(
            NARROW_PROJECTION,
            format!(
                "the index `{}` does not contain {}, which the pattern `{}` reads: {effect}",
                index.index_name,
                listed(missing.iter().map(String::as_str)).replace(" or ", " and "),
                self.pattern.pattern
            ),
            "add it to `NonKeyAttributes` of the index, or read the items of the table by their keys",
        );
        true
    }

    /// Reports key attributes of indexes that an update changes.
    fn changing_keys(&self) {
        for Action { table, parameters } in self.command.actions() {
            let changed = updated(parameters);
            let Some((_, table)) = self.context.model.table(table) else { continue };
            for index in table.indexes() {
                let mut keys = key_names(&index.key_schema).into_iter();
                let Some(name) = keys.find(|name| changed.contains(*name)) else { continue };
                let mut here = self.outcome.consumed.iter();
                let here = here.find(|consumed| {
                    consumed.table == table.table_name
                        && consumed.index.as_ref() == Some(&index.index_name)
                });
                let Some(consumed) = here else { continue };
                let tried = (self.pattern, self.command, self.outcome);
                let sizes = Sizes::of(self.context.model, table, Some(index));
                let (_, units) = units(tried, consumed, sizes);
                if units <= 0.0 {
                    continue;
                }
                let price = self.pattern.rates().map_or(String::new(), |(average, _)| {
                    let dollars = self.context.prices.month_on_demand(units * average, 0.0);
                    format!(", {dollars:.2} dollars a month on demand")
                });
                self.report(
                    CHANGING_KEY,
                    format!(
                        "the pattern `{}` changes `{name}`, a key attribute of `{}`: its entry there is added, deleted or replaced, {} for each request{price}",
                        self.pattern.pattern,
                        index.index_name,
                        counted(units, "write unit", "write units"),
                    ),
                    "choose a key that does not change, project fewer attributes, or accept `changing-key`",
                );
            }
        }
    }
}

/// Returns the attributes that the example items of a table have, and those that patterns write.
fn known_attributes(model: &DataModel, table: &str) -> BTreeSet<String> {
    let mut known: BTreeSet<String> =
        model.items_of(table).iter().flat_map(|item| item.keys().cloned()).collect();
    let commands = model.patterns.iter().filter_map(|pattern| pattern.command.as_ref());
    for action in commands.flat_map(Command::actions).filter(|action| action.table == table) {
        let item = action.parameters.get("Item").and_then(Value::as_object);
        known.extend(item.into_iter().flat_map(Map::keys).cloned());
        known.extend(updated(action.parameters));
    }
    known
}
