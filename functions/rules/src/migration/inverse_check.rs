//! The check of the reverse direction, from the targets to the sources, before a cut-over.
//! `inverse` must restore each item from its targets, and must read only tables that the plan
//! writes.
//!
//! The caller reads the items.

use model::Item;
use thiserror::Error;

use super::plan::{Direction, Kind, Plan};
use super::{ItemError, Migration, PlanError, Rewrite, SourceItem};

/// An item that `inverse` does not restore.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InverseError {
    /// An item that the migration cannot process.
    #[error(transparent)]
    Item(#[from] ItemError),
    /// An item whose targets `inverse` cannot process.
    #[error("{item}: {error}")]
    Inverse {
        /// The item.
        item: SourceItem,
        /// The reason.
        #[source]
        error: ItemError,
    },
    /// An item whose targets `inverse` turns into another item.
    #[error("{item} becomes an item that `inverse` turns into {back}")]
    OtherItem {
        /// The item.
        item: SourceItem,
        /// The other item.
        back: SourceItem,
    },
    /// An item that is restored with different attributes.
    #[error("{0} is restored with different attributes")]
    OtherAttributes(SourceItem),
    /// An item that is not restored.
    #[error("{0} is not restored by `inverse`")]
    NotRestored(SourceItem),
    /// A document whose parts form a different document.
    #[error("{0} differs from the document that its parts form")]
    OtherDocument(SourceItem),
    /// An item that a change in place does not restore after `inverse`.
    #[error("{0}: `inverse` followed by the forward transform yields a different item")]
    NotRepeated(SourceItem),
}

impl Plan {
    /// Returns errors for the tables that `inverse` reads although the plan does not write to them.
    /// Nothing could be restored from them.
    #[must_use]
    pub fn unwritten_inverse_tables(&self) -> Vec<PlanError> {
        let written = self.target_tables(Direction::Forward);
        let wrong = self
            .inverse
            .iter()
            .enumerate()
            .filter(|(_, source)| !written.contains(&source.table.as_str()));
        let errors = wrong.map(|(number, source)| PlanError {
            place: format!("inverse[{number}].table"),
            reason: format!(
                "no entry of `from` writes to `{}`, so nothing can be restored from this table; `inverse` can read {}",
                source.table,
                written.join(", ")
            ),
            at: None,
        });
        errors.collect()
    }
}

impl Migration {
    /// Checks that `inverse` restores exactly this item from its targets. A migration in place has
    /// no targets. For a migration in place, `inverse` followed by the forward transform must not
    /// change an item that is already as the plan requires.
    ///
    /// # Errors
    /// Returns the item that is not restored, and the reason.
    pub fn check_inverse(
        &self,
        inverse: &Self,
        table: &str,
        item: &Item,
    ) -> Result<(), InverseError> {
        match self.kind {
            Kind::InPlace | Kind::Purge => self.check_inverse_in_place(inverse, table, item),
            Kind::Restructure | Kind::Split => self.check_inverse_to_targets(inverse, table, item),
        }
    }

    fn check_inverse_to_targets(
        &self,
        inverse: &Self,
        table: &str,
        item: &Item,
    ) -> Result<(), InverseError> {
        let Some(item) = self.visible(table, item) else { return Ok(()) };
        let source = self.source_item(table, &item)?;
        if self.kind == Kind::Split {
            let back = self.there_and_back(table, &item).map_err(ItemError::from)?;
            return match back == Some(item) {
                true => Ok(()),
                false => Err(InverseError::OtherDocument(source)),
            };
        }
        let mut is_restored = false;
        for (target, output) in self.outputs(table, &item).unwrap_or_default() {
            let back = inverse.outputs(&target.table, &output);
            let back =
                back.map_err(|error| InverseError::Inverse { item: source.clone(), error })?;
            for (origin, original) in back {
                let back = inverse.source_item(&origin.table, &original)?;
                if back != source {
                    return Err(InverseError::OtherItem { item: source, back });
                }
                if original != item {
                    return Err(InverseError::OtherAttributes(source));
                }
                is_restored = true;
            }
        }
        if is_restored { Ok(()) } else { Err(InverseError::NotRestored(source)) }
    }

    fn check_inverse_in_place(
        &self,
        inverse: &Self,
        table: &str,
        item: &Item,
    ) -> Result<(), InverseError> {
        if self.rewrite(table, item)? != Rewrite::Keep {
            return Ok(());
        }
        let source = || self.source_item(table, item);
        let back = match inverse.rewrite(table, item) {
            Ok(Rewrite::Change(back)) => back,
            Ok(_) => return Ok(()),
            Err(error) => return Err(InverseError::Inverse { item: source()?, error }),
        };
        match self.rewrite(table, &back) {
            Ok(Rewrite::Change(again)) if again == *item => Ok(()),
            _ => Err(InverseError::NotRepeated(source()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::json::item_from_str;
    use model::{KeyAttribute, KeyAttributeType, KeySchema};

    use super::super::plan::{Backfill, FUNCTION_SECONDS, Output, Source};
    use super::*;

    fn source(table: &str, to: &str, transform: &str, key: &[(&str, &str)]) -> Source {
        let key = key.iter().map(|(name, template)| ((*name).to_owned(), (*template).to_owned()));
        let output =
            Output { to: to.to_owned(), transform: transform.to_owned(), key: key.collect() };
        Source { table: table.to_owned(), items: vec![output], split: None, archive: false }
    }

    fn plan(kind: Kind, from: Source, inverse: Source) -> Plan {
        Plan {
            migration: "m".to_owned(),
            kind,
            from: vec![from],
            inverse: vec![inverse],
            backfill: Backfill::Scan,
            segments: 1,
            gate_seconds: 1,
            settle_seconds: 5,
            function_seconds: FUNCTION_SECONDS,
            route: None,
        }
    }

    /// Returns the result of the check for an item of `orders`.
    fn back(plan: &Plan, item: &str) -> Result<(), String> {
        let schema = |name: &str| {
            let attribute_type = KeyAttributeType::S;
            let partition = KeyAttribute { name: name.to_owned(), attribute_type };
            KeySchema { partition, sort: None }
        };
        let schemas: BTreeMap<_, _> =
            [("orders".to_owned(), schema("id")), ("shop".to_owned(), schema("pk"))].into();
        let compile = |direction| Migration::compile(plan, direction, &schemas).unwrap();
        let (forward, inverse) = (compile(Direction::Forward), compile(Direction::Reverse));
        let checked = forward.check_inverse(&inverse, "orders", &item_from_str(item).unwrap());
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn the_way_back_restores_an_item_of_another_table_or_not() {
        let order = r#"{"id":{"S":"7"},"total":{"N":"3"}}"#;
        let shop = |inverse: &str| {
            let there = source("orders", "shop", ".", &[("pk", "O#{id}")]);
            plan(Kind::Restructure, there, source("shop", "orders", inverse, &[]))
        };
        for (inverse, expected) in [
            ("del(.pk)", Ok(())),
            ("del(.pk, .total)", Err("is restored with different attributes")),
            ("del(.pk, .id)", Err("orders|{\"id\":{\"S\":\"7\"}}: ")),
            ("del(.pk) | .id = \"8\"", Err("`inverse` turns into orders|")),
            ("empty", Err("is not restored by `inverse`")),
        ] {
            let found = back(&shop(inverse), order);
            match expected {
                Ok(()) => assert_eq!(found, Ok(()), "{inverse}"),
                Err(why) => assert!(found.clone().unwrap_err().contains(why), "{found:?}"),
            }
        }
    }

    #[test]
    fn the_way_back_in_place_restores_an_item_that_can_be_made_again() {
        let finished = r#"{"id":{"S":"7"},"state":{"S":"open"},"total":{"N":"3"}}"#;
        let there = "if has(\"status\") then .state = .status | del(.status) else . end";
        let renamed = "if has(\"state\") then (if has(\"status\") then . else .status = .state end) | del(.state) else . end";
        for (inverse, is_lost) in [
            (renamed.to_owned(), false),
            (format!("{renamed} | del(.total)"), true),
            ("del(.state)".to_owned(), true),
        ] {
            let place = |transform: &str| source("orders", "orders", transform, &[]);
            let plan = plan(Kind::InPlace, place(there), place(&inverse));
            assert_eq!(back(&plan, finished).is_err(), is_lost, "{inverse}");
        }
    }

    #[test]
    fn a_way_back_from_an_unwritten_table_is_reported() {
        let there = source("orders", "shop", ".", &[("pk", "{id}")]);
        let right = plan(Kind::Restructure, there.clone(), source("shop", "orders", ".", &[]));
        assert_eq!(right.unwritten_inverse_tables(), []);
        let wrong = plan(Kind::Restructure, there, source("shops", "orders", ".", &[]));
        let errors = wrong.unwritten_inverse_tables();
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].place, "inverse[0].table");
        let reason = &errors[0].reason;
        assert!(reason.contains("`shops`") && reason.ends_with("can read shop"), "{reason}");
    }
}
