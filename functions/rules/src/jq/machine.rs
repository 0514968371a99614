//! The state of one evaluation, and the limits of its work.
//!
//! `evaluation` evaluates terms. Other modules evaluate the filters.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::regex::Regex;
use super::stop::{Flow, Stop};
use super::value::Val;

/// The maximum number of steps for one value: a few seconds at most. The transform of a typical item takes a
/// few hundred steps.
const STEPS_MAX: u64 = 5_000_000;
/// The maximum size of a string in bytes. An item has at most 400 KB.
const TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The state of one evaluation.
#[derive(Default)]
pub(super) struct Machine {
    steps: Cell<u64>,
    pub(super) labels: Cell<u64>,
    pub(super) patterns: RefCell<BTreeMap<(String, String), Arc<Regex>>>,
}

impl Machine {
    /// Counts steps, and ends the evaluation at the maximum.
    pub(super) fn charge(&self, steps: u64) -> Flow {
        let taken = self.steps.get().saturating_add(steps);
        self.steps.set(taken);
        if taken > STEPS_MAX {
            let reason = format!("the program takes more than {STEPS_MAX} steps for this item");
            return Err(Stop::Refused(reason));
        }
        Ok(())
    }

    /// Returns a computed value. The value is refused if it is too large.
    pub(super) fn bounded(&self, value: Val) -> Flow<Val> {
        if !value.is_in_bounds() {
            return Err(Stop::refused(
                "the program creates a value that is nested too deeply or too large",
            ));
        }
        if let Val::Str(text) = &value {
            self.text_of(text.len())?;
        }
        Ok(value)
    }

    /// Checks that a string of this size may be created.
    pub(super) fn text_of(&self, bytes: usize) -> Flow {
        if bytes > TEXT_BYTES_MAX {
            let reason = format!("the program makes a text of more than {TEXT_BYTES_MAX} bytes");
            return Err(Stop::Refused(reason));
        }
        self.charge(bytes as u64 / 64)
    }
}
