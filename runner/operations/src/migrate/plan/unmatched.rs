//! Describes attribute names in a plan that none of the sampled items has.

use std::collections::BTreeSet;

use rules::migration::{Absent, Unmatched};

use client::output::counted;
use template::diagnostic::similar;

/// Maximum number of names in a message.
const NAMES_MAX: usize = 12;

/// Returns the existing name that the author of the plan probably meant.
fn meant(absent: &Absent) -> Option<&str> {
    similar(&absent.name, absent.known.iter().map(String::as_str))
}

/// Formats a line about one unmatched name.
pub(crate) fn line(table: &str, tried: usize, unmatched: &Unmatched) -> String {
    let tried = counted(tried, "item", "items");
    let of_absent = |absent: &Absent, what: &str| {
        let hint = match meant(absent) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("existing names are {}", listed(&absent.known)),
        };
        format!("`{}`{what} {tried} of `{table}`; {hint}", absent.path)
    };
    match unmatched {
        Unmatched::Read(absent) => of_absent(absent, " is in none of"),
        Unmatched::Key(absent) => {
            of_absent(absent, ", used in a key, is in none of the target items of")
        }
        Unmatched::Cut(absent) => of_absent(absent, ", the path of a part, is in none of"),
        Unmatched::NothingCut { path, types } => {
            let types: Vec<&str> = types.iter().copied().collect();
            format!(
                "`.{path}` is cut in none of {tried} of `{table}`: its type is {}; `cut: each` takes a list that is not empty, `cut: 1000` and above a string, binary, list or map, `cut: whole` any value",
                types.join(" or ")
            )
        }
    }
}

fn listed(names: &BTreeSet<String>) -> String {
    let mut shown: Vec<String> =
        names.iter().take(NAMES_MAX).map(|name| format!("`{name}`")).collect();
    if names.len() > NAMES_MAX {
        shown.push(format!("{} more", names.len() - NAMES_MAX));
    }
    shown.join(", ")
}

/// Returns true if the unmatched name is probably misspelled, rather than the name of a rare
/// attribute: an existing name is similar, a key uses the name, or the name is a path at which a
/// split never cuts.
pub(crate) fn is_slip(unmatched: &Unmatched) -> bool {
    match unmatched {
        Unmatched::Read(absent) => meant(absent).is_some(),
        Unmatched::Key(_) | Unmatched::Cut(_) | Unmatched::NothingCut { .. } => true,
    }
}
