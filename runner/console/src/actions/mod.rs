//! What buttons do: one module for each action. The service has checked the token before.

pub(crate) mod item;
mod item_change;
pub(crate) mod partition;

use serde_json::{Value, json};

use crate::query::href;

/// The result of an action.
#[derive(Debug)]
pub(crate) struct Done {
    /// What was done, as one sentence.
    pub(crate) said: String,
}

impl Done {
    /// Returns the address of the page to show: the one with the button, or the first one.
    pub(crate) fn address(&self, back: Option<&str>) -> String {
        // `//host` would be another site.
        let is_own = |back: &&str| back.starts_with('/') && !back.starts_with("//");
        back.filter(is_own).map_or_else(|| href(&["pipelines"], &[]), str::to_owned)
    }

    /// Returns the result for programs.
    pub(crate) fn json(&self) -> Value {
        json!({"schema": "weir.console.done/v1", "done": self.said})
    }
}
