//! Values of transforms: JSON, with jq's order, and bounds on depth and size.

use std::cmp::Ordering;
use std::sync::Arc;

use indexmap::IndexMap;

use super::number::Num;

/// The maximum nesting of a value. An item has 32 levels.
pub(crate) const DEPTH_MAX: u32 = 256;
/// The maximum number of values within a value. A value that occurs several times counts each time.
/// An item of 400 KB contains fewer than 400,000 values.
pub(crate) const NODES_MAX: u32 = 4_000_000;

/// Members in insertion order.
pub(crate) type Members = IndexMap<Arc<str>, Val>;

/// A value.
#[derive(Clone, Debug, Default)]
pub(crate) enum Val {
    #[default]
    Null,
    Bool(bool),
    Num(Num),
    Str(Arc<str>),
    Arr(Arc<Array>),
    Obj(Arc<Object>),
}

/// Upper bounds of the depth and the size of a value.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    depth: u32,
    nodes: u32,
}

impl Extent {
    fn with(self, member: &Val) -> Self {
        let extent = member.extent();
        Self {
            depth: self.depth.max(extent.depth.saturating_add(1)),
            nodes: self.nodes.saturating_add(extent.nodes).saturating_add(1),
        }
    }
}

/// An array.
#[derive(Clone, Debug, Default)]
pub(crate) struct Array {
    members: Vec<Val>,
    extent: Extent,
}

/// An object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    members: Members,
    extent: Extent,
}

impl Array {
    /// Returns the members.
    pub(crate) fn members(&self) -> &[Val] {
        &self.members
    }

    /// Appends a value.
    pub(crate) fn push(&mut self, value: Val) {
        self.extent = self.extent.with(&value);
        self.members.push(value);
    }

    /// Sets the value at a position. Missing members before it become null.
    pub(crate) fn set(&mut self, place: usize, value: Val) {
        while self.members.len() <= place {
            self.push(Val::Null);
        }
        self.extent = self.extent.with(&value);
        if let Some(member) = self.members.get_mut(place) {
            *member = value;
        }
    }

    /// Returns the member at a position, and replaces it by null.
    pub(crate) fn take(&mut self, place: usize) -> Val {
        self.members.get_mut(place).map(std::mem::take).unwrap_or_default()
    }
}

impl Object {
    /// Returns the members.
    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    /// Sets the value of a name. An existing name keeps its position.
    pub(crate) fn set(&mut self, name: Arc<str>, value: Val) {
        self.extent = self.extent.with(&value);
        self.members.insert(name, value);
    }

    /// Returns the member with a name, and replaces it by null.
    pub(crate) fn take(&mut self, name: &str) -> Val {
        self.members.get_mut(name).map(std::mem::take).unwrap_or_default()
    }

    /// Removes a member. The other members keep their order.
    pub(crate) fn remove(&mut self, name: &str) {
        self.members.shift_remove(name);
    }

    /// Returns the names in their order.
    pub(crate) fn names(&self) -> Vec<&Arc<str>> {
        let mut names: Vec<_> = self.members.keys().collect();
        names.sort_unstable();
        names
    }
}

impl FromIterator<Val> for Array {
    fn from_iter<I: IntoIterator<Item = Val>>(members: I) -> Self {
        let mut array = Self::default();
        members.into_iter().for_each(|member| array.push(member));
        array
    }
}

impl FromIterator<(Arc<str>, Val)> for Object {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Val)>>(members: I) -> Self {
        let mut object = Self::default();
        members.into_iter().for_each(|(name, value)| object.set(name, value));
        object
    }
}

impl FromIterator<Val> for Val {
    fn from_iter<I: IntoIterator<Item = Self>>(members: I) -> Self {
        Self::Arr(Arc::new(members.into_iter().collect()))
    }
}

impl FromIterator<(Arc<str>, Val)> for Val {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Val)>>(members: I) -> Self {
        Self::Obj(Arc::new(members.into_iter().collect()))
    }
}

impl From<f64> for Val {
    fn from(value: f64) -> Self {
        Self::Num(Num::Float(value))
    }
}

impl From<&str> for Val {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

impl From<String> for Val {
    fn from(text: String) -> Self {
        Self::Str(text.into())
    }
}

impl From<bool> for Val {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl Val {
    /// Returns a count or a position as a value.
    pub(crate) fn count(count: usize) -> Self {
        // The conversion is exact, because no string or array has 2^53 members.
        Self::from(count as f64)
    }

    /// Returns whether jq treats the value as true.
    pub(crate) fn is_true(&self) -> bool {
        !matches!(self, Self::Null | Self::Bool(false))
    }

    /// Returns jq's name of the type.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Num(_) => "number",
            Self::Str(_) => "string",
            Self::Arr(_) => "array",
            Self::Obj(_) => "object",
        }
    }

    fn extent(&self) -> Extent {
        match self {
            Self::Arr(array) => array.extent,
            Self::Obj(object) => object.extent,
            _ => Extent::default(),
        }
    }

    /// Returns whether the value is within the bounds.
    pub(crate) fn is_in_bounds(&self) -> bool {
        let Extent { depth, nodes } = self.extent();
        depth <= DEPTH_MAX && nodes <= NODES_MAX
    }

    /// Returns the size of the value in nodes: one for the value itself and one for each value
    /// within the value. A string has one more node for each 64 bytes.
    pub(crate) fn nodes(&self) -> u64 {
        let text = if let Self::Str(text) = self { text.len() as u64 / 64 } else { 0 };
        u64::from(self.extent().nodes) + text + 1
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(false) => 1,
            Self::Bool(true) => 2,
            Self::Num(_) => 3,
            Self::Str(_) => 4,
            Self::Arr(_) => 5,
            Self::Obj(_) => 6,
        }
    }

    /// Compares values in jq's order.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Num(left), Self::Num(right)) => left.compare(right),
            (Self::Str(left), Self::Str(right)) => left.cmp(right),
            (Self::Arr(left), Self::Arr(right)) => {
                let both = left.members.iter().zip(&right.members);
                let first =
                    both.map(|(left, right)| left.compare(right)).find(|order| order.is_ne());
                first.unwrap_or_else(|| left.members.len().cmp(&right.members.len()))
            }
            (Self::Obj(left), Self::Obj(right)) => {
                let (names, others) = (left.names(), right.names());
                names.cmp(&others).then_with(|| {
                    let member = |object: &Object, name: &str| {
                        object.members.get(name).cloned().unwrap_or_default()
                    };
                    let both =
                        names.iter().map(|name| member(left, name).compare(&member(right, name)));
                    both.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
                })
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialEq for Val {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other).is_eq()
    }
}
