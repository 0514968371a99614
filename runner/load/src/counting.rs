//! Counts lines into sharded counters: computes the counter, the slot and the amount.
//!
//! The hash of the voter's name selects the slot, so all lines of a voter count in the same slot.

use std::path::Path;

use model::{KeyAttributeType, KeyValue, Number, Token};

use super::arguments::LoadArguments;
use super::row::Row;
use client::failure::{Result, fatal};
use operations::counters::SLOT_COUNT_DEFAULT;

/// The rule by which a load converts a line into an update of one slot.
pub(crate) struct Counting {
    template: Vec<Part>,
    voter: String,
    amount: Option<String>,
    slots: u32,
    /// The key attribute of the table of slots.
    pub(crate) key: String,
    /// The attribute that contains the count.
    pub(crate) count_attribute: String,
}

enum Part {
    Text(String),
    Column(String),
}

/// One addition to one slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlotUpdate {
    pub(crate) slot: String,
    pub(crate) amount: Number,
}

impl Counting {
    /// Returns the counting rule of the flags; `None` without `--count-into`.
    pub(crate) fn from_arguments(
        arguments: &LoadArguments,
        keys: &[(String, KeyAttributeType)],
    ) -> Result<Option<Self>> {
        let (Some(template), Some(voter)) = (&arguments.count_into, &arguments.voter) else {
            return Ok(None);
        };
        let [(key, KeyAttributeType::S)] = keys else {
            return Err(fatal!(
                "--count-into: table `{}` must have one key attribute of type S, such as `slot`",
                arguments.table
            ));
        };
        Ok(Some(Self {
            template: parse_template(template)?,
            voter: voter.clone(),
            amount: arguments.amount.clone(),
            slots: arguments.slots.unwrap_or(SLOT_COUNT_DEFAULT),
            key: key.clone(),
            count_attribute: arguments.count_attribute.clone(),
        }))
    }

    /// Returns the number of slots of each counter.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Checks that the file has the columns that the flags name.
    ///
    /// # Errors
    /// When a column is missing. Without the check, every line would be put aside.
    pub(crate) fn check_columns(&self, file: &Path, columns: &[String]) -> Result<()> {
        let of_template = self.template.iter().filter_map(|part| match part {
            Part::Column(column) => Some(("--count-into", column)),
            Part::Text(_) => None,
        });
        let amount = self.amount.iter().map(|column| ("--amount", column));
        let named = of_template.chain([("--voter", &self.voter)]).chain(amount);
        for (flag, column) in named {
            if !columns.contains(column) {
                return Err(fatal!(
                    "{flag}: `{}` has no column `{column}`; columns are {}",
                    file.display(),
                    columns.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Returns the update of a slot that counts a line.
    pub(crate) fn update(&self, row: &Row) -> Result<SlotUpdate> {
        let mut slot = String::new();
        for part in &self.template {
            match part {
                Part::Text(text) => slot.push_str(text),
                Part::Column(column) => slot.push_str(&column_text(row, column)?),
            }
        }
        let voter = Token::of(&KeyValue::S(column_text(row, &self.voter)?));
        let amount = match &self.amount {
            Some(column) => {
                let text = column_text(row, column)?;
                text.parse().map_err(|error| fatal!("column `{column}`: {error}"))?
            }
            None => Number::from(1u64),
        };
        Ok(SlotUpdate { slot: format!("{slot}#{}", voter.0 % u64::from(self.slots)), amount })
    }
}

fn column_text(row: &Row, column: &str) -> Result<String> {
    use model::AttributeValue::{Bool, N, S};
    match row.item.get(column) {
        Some(S(text)) => Ok(text.clone()),
        Some(N(number)) => Ok(number.to_string()),
        Some(Bool(flag)) => Ok(flag.to_string()),
        Some(other) => Err(fatal!(
            "column `{column}` is of type {}; only S, N and BOOL can name a counter",
            other.attribute_type().descriptor()
        )),
        None => Err(fatal!("column `{column}` is missing")),
    }
}

fn parse_template(template: &str) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((text, behind)) = rest.split_once('{') {
        let Some((column, after)) = behind.split_once('}') else {
            return Err(fatal!("--count-into: `{template}` has a {{ without a }}"));
        };
        parts.push(Part::Text(text.to_owned()));
        parts.push(Part::Column(column.to_owned()));
        rest = after;
    }
    parts.push(Part::Text(rest.to_owned()));
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Item;

    #[test]
    fn a_voter_always_counts_in_one_slot() {
        let counting = Counting {
            template: parse_template("{year}#{round}").unwrap(),
            voter: "voter".to_owned(),
            amount: Some("points".to_owned()),
            slots: 20,
            key: "slot".to_owned(),
            count_attribute: "votes".to_owned(),
        };
        let row = |voter: &str, points: &str| Row {
            line: 1,
            text: String::new(),
            item: Item::new()
                .with("year", Number::from(2016u64))
                .with("round", "final")
                .with("voter", voter)
                .with("points", points),
        };
        let update = counting.update(&row("AL", "6")).unwrap();
        assert!(update.slot.starts_with("2016#final#"), "{}", update.slot);
        assert_eq!(update.amount, Number::from(6u64));
        assert_eq!(counting.update(&row("AL", "12")).unwrap().slot, update.slot);
        assert!(counting.update(&row("AL", "x")).is_err());
        assert!(parse_template("{year").is_err());

        let file = Path::new("points.csv");
        let columns = |names: &str| names.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(counting.check_columns(file, &columns("points voter round year x")), Ok(()));
        for (columns, expected) in [
            (
                columns("points voter year"),
                "--count-into: `points.csv` has no column `round`; columns are points, voter, year",
            ),
            (
                columns("points round year"),
                "--voter: `points.csv` has no column `voter`; columns are points, round, year",
            ),
            (
                columns("voter round year"),
                "--amount: `points.csv` has no column `points`; columns are voter, round, year",
            ),
        ] {
            assert_eq!(counting.check_columns(file, &columns), Err(expected.into()));
        }
    }
}
