//! Parses the part of a plan file that describes how documents are split.
//!
//! `plan::check` checks the split against the tables.

use std::collections::BTreeMap;

use rules::migration::plan::{Cut, Output, Part, Parts, Source};

use crate::migrate::plan::plan_file::Reader;
use template::document::Node;

/// Default sort key of a document's profile: the item with all attributes that are not in parts.
const PROFILE: &str = "PROFILE";

/// Returns the sources of the inverse of a split, which reads parts and writes documents.
pub(crate) fn inverse(sources: &[Source]) -> Vec<Source> {
    let back = sources.iter().filter_map(|source| {
        let output = source.items.first()?;
        let document =
            Output { to: source.table.clone(), transform: ".".to_owned(), key: BTreeMap::new() };
        Some(Source {
            table: output.to.clone(),
            items: vec![document],
            split: None,
            archive: false,
        })
    });
    back.collect()
}

impl Reader<'_, '_> {
    /// Parses a table whose documents are split.
    pub(crate) fn split(
        &mut self,
        node: &Node,
        table: Option<&Node>,
        place: &str,
    ) -> Option<Source> {
        let to = self.table(node, "to", "movie-parts");
        if let Some(to) = to {
            self.places.insert(format!("{place}.to"), to.at);
        }
        self.places.insert(format!("{place}.key"), node.get("key").map_or(node.at, |key| key.at));
        let key = self.key(node, place);
        let profile = match node.get("profile") {
            None => PROFILE.to_owned(),
            Some(_) => self.text(node, "profile", PROFILE)?.as_text()?.to_owned(),
        };
        let nodes = self.list(node, "parts", true)?;
        let parts: Vec<Option<Part>> = nodes
            .iter()
            .enumerate()
            .map(|(number, node)| self.part(node, &format!("{place}.parts[{number}]")))
            .collect();
        let parts = parts.into_iter().collect::<Option<_>>()?;
        let (table, to) = (table?.as_text()?.to_owned(), to?.as_text()?.to_owned());
        let items = vec![Output { to, transform: ".".to_owned(), key }];
        Some(Source { table, items, split: Some(Parts { profile, list: parts }), archive: false })
    }

    fn part(&mut self, node: &Node, place: &str) -> Option<Part> {
        self.known(node, &["name", "path", "cut"]);
        let (name, path) =
            (self.text(node, "name", "ACTOR"), self.text(node, "path", "info.actors"));
        for (member, value) in [("name", name), ("path", path), ("cut", node.get("cut"))] {
            if let Some(value) = value {
                self.places.insert(format!("{place}.{member}"), value.at);
            }
        }
        let cut = match node.get("cut") {
            None => Cut::Whole,
            Some(value) => match value.as_text() {
                Some("whole") => Cut::Whole,
                Some("each") => Cut::Each,
                text => {
                    let bytes = text.and_then(|text| text.parse().ok());
                    if bytes.is_none() {
                        let help = "write `whole` (one item), `each` (one item for each member of a list), or a number (pieces of that many bytes)";
                        let message = "unknown way to cut a value".to_owned();
                        self.findings.error(value.at, message, help);
                    }
                    Cut::Bytes(bytes?)
                }
            },
        };
        let (name, path) = (name?.as_text()?.to_owned(), path?.as_text()?.to_owned());
        Some(Part { name, path, cut })
    }
}
