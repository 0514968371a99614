//! Projections: the part of an item that a projection expression selects.
//!
//! The selected elements of a list form a list without gaps, in the same order. A map or list
//! without selected parts is omitted.

use std::collections::BTreeMap;

use model::{AttributeValue, Item};
use serde::{Deserialize, Serialize};

use crate::check::check_projection;
use crate::error::{ExpressionError, ExpressionKind};
use crate::parser;
use crate::path::{Path, PathElement, check_distinct};
use crate::placeholders::Placeholders;
use crate::resolve::Resolver;

/// The selected parts of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Projection {
    roots: BTreeMap<String, Selection>,
    /// The selected values that have their own names at the top level of the result.
    columns: Vec<(String, Path)>,
}

/// The selected parts of a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Selection {
    Whole,
    Members(BTreeMap<String, Selection>),
    Elements(BTreeMap<u32, Selection>),
}

/// Parses a projection expression.
///
/// # Errors
/// The first error that DynamoDB would report, with its message.
pub fn parse_projection(
    text: &str,
    placeholders: &mut Placeholders,
) -> Result<Projection, ExpressionError> {
    let steps = parser::parse_projection(text)?;
    check_projection(&steps)?;
    let kind = ExpressionKind::Projection;
    let mut resolver = Resolver::new(kind, placeholders);
    let paths: Vec<Path> =
        steps.iter().map(|path| resolver.path(path)).collect::<Result<_, _>>()?;
    check_distinct(kind, &paths.iter().collect::<Vec<_>>())?;
    Ok(Projection::of(&paths))
}

impl Projection {
    /// Selects the values at `paths`. The paths must not overlap.
    pub(crate) fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut roots = BTreeMap::new();
        for path in paths {
            select(&mut roots, path.root().to_owned(), path.below());
        }
        Self { roots, columns: Vec::new() }
    }

    /// Selects each value under its own name. If two values have the same name, the result contains
    /// the last one.
    pub(crate) fn of_columns(columns: Vec<(String, Path)>) -> Self {
        Self { roots: BTreeMap::new(), columns }
    }

    /// Returns the names of the top-level attributes that are selected completely or partly.
    pub fn roots(&self) -> impl Iterator<Item = &str> {
        let of_columns = self.columns.iter().map(|(_, path)| path.root());
        self.roots.keys().map(String::as_str).chain(of_columns)
    }

    /// Returns the names of the top-level attributes that are selected only partly, by nested
    /// paths. Columns are not included.
    pub fn entered_roots(&self) -> impl Iterator<Item = &str> {
        let is_part = |selection: &Selection| !matches!(selection, Selection::Whole);
        let of_roots = self.roots.iter().filter(move |(_, selection)| is_part(selection));
        of_roots.map(|(name, _)| name.as_str())
    }

    /// Returns the selected part of an item.
    #[must_use]
    pub fn apply(&self, item: &Item) -> Item {
        let kept = members_of(&self.roots, item);
        let columns = self
            .columns
            .iter()
            .filter_map(|(name, path)| Some((name.clone(), path.find(item)?.clone())));
        kept.into_iter().chain(columns).collect()
    }
}

/// Returns the selected members of a map. Iterates over the smaller of the map and the selection,
/// because a request may contain far more attribute names than an item has.
fn members_of(
    selections: &BTreeMap<String, Selection>,
    values: &BTreeMap<String, AttributeValue>,
) -> BTreeMap<String, AttributeValue> {
    let kept = |name: &String, selection: &Selection, value: &AttributeValue| {
        Some((name.clone(), selection.apply(value)?))
    };
    if selections.len() <= values.len() {
        let of = |(name, selection)| kept(name, selection, values.get(name)?);
        selections.iter().filter_map(of).collect()
    } else {
        let of = |(name, value)| kept(name, selections.get(name)?, value);
        values.iter().filter_map(of).collect()
    }
}

fn select<K: Ord>(selections: &mut BTreeMap<K, Selection>, key: K, below: &[PathElement]) {
    let Some((first, rest)) = below.split_first() else {
        selections.insert(key, Selection::Whole);
        return;
    };
    let selection = selections.entry(key).or_insert_with(|| match first {
        PathElement::Member(_) => Selection::Members(BTreeMap::new()),
        PathElement::Index(_) => Selection::Elements(BTreeMap::new()),
    });
    match (selection, first) {
        (Selection::Members(members), PathElement::Member(name)) => {
            select(members, name.clone(), rest);
        }
        (Selection::Elements(elements), PathElement::Index(index)) => {
            select(elements, *index, rest);
        }
        // Impossible: the paths neither overlap nor conflict.
        (Selection::Whole | Selection::Members(_) | Selection::Elements(_), _) => {}
    }
}

impl Selection {
    fn apply(&self, value: &AttributeValue) -> Option<AttributeValue> {
        match (self, value) {
            (Self::Whole, value) => Some(value.clone()),
            (Self::Members(selections), AttributeValue::M(members)) => {
                Some(members_of(selections, members))
                    .filter(|kept| !kept.is_empty())
                    .map(AttributeValue::M)
            }
            (Self::Elements(selections), AttributeValue::L(elements)) => {
                let kept = selections.iter().filter_map(|(index, selection)| {
                    selection.apply(elements.get(usize::try_from(*index).ok()?)?)
                });
                Some(kept.collect()).filter(|kept: &Vec<_>| !kept.is_empty()).map(AttributeValue::L)
            }
            _ => None,
        }
    }
}
