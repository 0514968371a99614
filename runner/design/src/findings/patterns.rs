//! Findings of access patterns.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use template::diagnostic::{counted, listed, similar};

use crate::command::{Action, Command, Operation, attributes, key_condition, updated};
use crate::data_model::{AccessPattern, DataModel, Place, key_names};
use crate::estimate::tried;
use crate::findings::{
    CHANGING_KEY, Context, FILTER, NARROW_PROJECTION, NO_ITEMS, REFUSED, SCAN, UNANSWERED,
    UNKNOWN_ATTRIBUTE,
};
use crate::report::{dollars, number};
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
            Some(error) => one.refused(error),
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

    /// Reports a finding at a word of the command.
    fn report_at(&self, word: &str, check: &'static str, message: String, help: &str) {
        let at = self.context.place_in_command(self.at, word);
        self.context.report(check, &self.pattern.accept, at, message, help);
    }

    /// Reports that the store rejects the request. The most probable cause is a key condition on an
    /// attribute that is not in the key.
    fn refused(&self, error: &str) {
        let message =
            format!("the local store rejects the pattern `{}`: {error}", self.pattern.pattern);
        match self.key_condition_mistake() {
            Some((word, help)) => self.report_at(&word, REFUSED, message, &help),
            None => {
                let help = "correct the command, or the tables and items that it uses";
                self.report(REFUSED, message, help);
            }
        }
    }

    /// Returns the first attribute of a key condition that is not in the key, and the correction.
    fn key_condition_mistake(&self) -> Option<(String, String)> {
        let (model, name) = (self.context.model, *self.command.tables().first()?);
        let (_, table) = model.table(name)?;
        let index = self.command.index().and_then(|name| table.index(name));
        let key = key_names(index.map_or(&table.key_schema, |index| &index.key_schema));
        let named = key_condition(&self.command.request);
        let wrong = named.into_iter().find(|name| !key.contains(&name.as_str()))?;
        let known = known_attributes(model, name);
        let declared = table.attribute_definitions.iter().map(|found| &found.attribute_name);
        let all = key.iter().copied().chain(declared.chain(&known).map(String::as_str));
        let owner = index.map_or(name, |index| index.index_name.as_str());
        let has = listed(key.iter().copied()).replace(" or ", " and ");
        let help = match similar(&wrong, all).filter(|meant| *meant != wrong) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!(
                "the key of `{owner}` has only {has}: filter by `{wrong}`, or query an index that has it as a key"
            ),
        };
        Some((wrong, help))
    }

    /// Reports scans, filters that discard most of the read items, and reads that find no items.
    fn answer(&self) {
        let Outcome { read, returned, .. } = *self.outcome;
        let name = &self.pattern.pattern;
        let is_scan = self.command.operation == Operation::Scan;
        if is_scan {
            let units: f64 = self.context.estimate.loads(self.at).map(|load| load.reads).sum();
            let units = match units > 0.0 {
                true => format!(", {} RCU for each request", number(units)),
                false => String::new(),
            };
            self.report(
                SCAN,
                format!("the pattern `{name}` scans: it reads, and pays for, every item{units}"),
                "use a Query with a key or an index for this pattern; accept `scan` for an export or a small table",
            );
        }
        let is_filtered = self.command.request.contains_key("FilterExpression");
        if is_filtered && read >= 2 && returned * 2 < read {
            let percent = (read - returned) * 100 / read;
            self.report(
                FILTER,
                format!("the pattern `{name}` reads {read} items and returns {returned}: the filter discards {percent} % of the items that you pay for"),
                "add the filter's attribute to a key, or to a sparse index",
            );
        }
        if self.command.operation.is_read() && read == 0 {
            self.report(
                NO_ITEMS,
                format!("the pattern `{name}` finds none of the example items"),
                "correct its key values, or add an example item that the pattern finds",
            );
        }
    }

    /// Reports attributes that a read names but no item has. Such a filter finds nothing, so its
    /// attributes are always reported. Other attributes are reported only if a similar name exists.
    fn unknown_attributes(&self) {
        if !self.command.operation.is_read() {
            return;
        }
        for Action { table, parameters } in self.command.actions() {
            let known = known_attributes(self.context.model, table);
            let found = attributes(parameters);
            let named = found.returned.iter().flatten().chain(&found.filtered);
            for name in named.collect::<BTreeSet<_>>() {
                let meant = similar(name, known.iter().map(String::as_str));
                // A filter may select items without an attribute.
                let is_filter = found.filtered.contains(name);
                let is_wrong = is_filter && !found.absent.contains(name) && !known.is_empty();
                if known.contains(name) || (meant.is_none() && !is_wrong) {
                    continue;
                }
                let help = match meant {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "correct the name, or add the attribute to an example item".to_owned(),
                };
                let pattern = &self.pattern.pattern;
                let use_of = match is_filter {
                    true => format!("by which the pattern `{pattern}` filters"),
                    false => format!("which the pattern `{pattern}` reads"),
                };
                let message = format!("no example item has `{name}`, {use_of}");
                self.report_at(name, UNKNOWN_ATTRIBUTE, message, &help);
            }
        }
    }

    /// Reports attributes that a read requests but its index lacks. Returns true if there are any.
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
            true => "DynamoDB also reads each item from the table",
            false => "DynamoDB rejects the request",
        };
        self.report_at(
            missing.first().map_or("", String::as_str),
            NARROW_PROJECTION,
            format!(
                "the index `{}` does not contain {}, which the pattern `{}` reads: {effect}",
                index.index_name,
                listed(missing.iter().map(String::as_str)).replace(" or ", " and "),
                self.pattern.pattern
            ),
            "add the missing attributes to `NonKeyAttributes` of the index, or read the items of the table by their keys",
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
                let part = self.context.estimate.part(&table.table_name, Some(&index.index_name));
                let mut loads = part.into_iter().flat_map(|part| &part.loads);
                let Some(load) = loads.find(|load| load.pattern == self.at) else { continue };
                let units = load.writes;
                if units <= 0.0 {
                    continue;
                }
                let price = self.pattern.rates().map_or(String::new(), |(average, _)| {
                    let price = self.context.prices.month_on_demand(units * average, 0.0);
                    format!(", {} a month on demand", dollars(price))
                });
                self.report_at(
                    name,
                    CHANGING_KEY,
                    format!(
                        "the pattern `{}` changes `{name}`, a key attribute of `{}`, so DynamoDB adds, deletes or replaces the index entry: {} for each request{price}",
                        self.pattern.pattern,
                        index.index_name,
                        counted(number(units), "write unit", "write units"),
                    ),
                    "choose a key that does not change, project fewer attributes, or accept `changing-key`",
                );
            }
        }
    }
}

/// Returns the attributes of a table's example items, and the attributes that patterns write.
/// Returns an empty set if there are no example items.
fn known_attributes(model: &DataModel, table: &str) -> BTreeSet<String> {
    let mut known: BTreeSet<String> =
        model.items_of(table).iter().flat_map(|item| item.keys().cloned()).collect();
    if known.is_empty() {
        return known;
    }
    let commands = model.patterns.iter().filter_map(|pattern| pattern.command.as_ref());
    for action in commands.flat_map(Command::actions).filter(|action| action.table == table) {
        let item = action.parameters.get("Item").and_then(Value::as_object);
        known.extend(item.into_iter().flat_map(Map::keys).cloned());
        known.extend(updated(action.parameters));
    }
    known
}
