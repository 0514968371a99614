//! The actions of buttons, one module for each. The service checks the token before it calls an
//! action.

pub(crate) mod archive;
pub(crate) mod chaos;
pub(crate) mod clock;
pub(crate) mod item;
mod item_change;
pub(crate) mod migration;
pub(crate) mod partition;
pub(crate) mod redrive;

use serde_json::{Value, json};

/// The result of an action.
#[derive(Debug)]
pub(crate) struct Done {
    /// The result as one sentence for people.
    pub(crate) said: String,
}

impl Done {
    /// Returns the address of the page to show after the action, with the number of the result.
    /// This is the page with the button, or the page Pipelines if `back` is missing or leads to
    /// another site.
    pub(crate) fn address(back: Option<&str>, notice: u64) -> String {
        // `//host` and `/\\host` would lead to another site.
        let is_own =
            |back: &&str| back.starts_with('/') && !back.starts_with("//") && !back.contains('\\');
        let back = back.filter(is_own).unwrap_or("/pipelines");
        let (path, query) = back.split_once('?').unwrap_or((back, ""));
        let kept =
            query.split('&').filter(|field| !field.is_empty() && !field.starts_with("notice="));
        let fields: Vec<String> =
            kept.map(str::to_owned).chain([format!("notice={notice}")]).collect();
        format!("{path}?{}", fields.join("&"))
    }

    /// Returns the result as JSON.
    pub(crate) fn json(&self) -> Value {
        json!({"schema": "weir.console.done/v1", "done": self.said})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_leads_back_to_a_page_of_the_console() {
        for (back, expected) in [
            (Some("/stream?table=t&notice=3"), "/stream?table=t&notice=7"),
            (Some("/stream"), "/stream?notice=7"),
            (Some("//evil.test/"), "/pipelines?notice=7"),
            (Some("/\\evil.test/"), "/pipelines?notice=7"),
            (Some("https://evil.test/"), "/pipelines?notice=7"),
            (None, "/pipelines?notice=7"),
        ] {
            assert_eq!(Done::address(back, 7), expected);
        }
    }
}
