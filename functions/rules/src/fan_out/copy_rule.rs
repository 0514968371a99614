//! A rule that copies attributes of origins to their copies.
//!
//! `declaration` parses rules, and `copy` computes what a copy must be.

use std::collections::BTreeMap;

/// The treatment of copies when their origin is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDelete {
    /// The copies are deleted.
    Cascade,
    /// The copied attributes are removed.
    Clear,
    /// The copies keep their values.
    Keep,
}

/// A rule that copies attributes of the items of one table to items of another table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRule {
    /// The name of the rule: 1 to 32 of a-z, 0-9 and `-`. Marks and jobs contain it.
    pub name: String,
    /// The table of the origins.
    pub origin: String,
    /// The partition key attribute of the origins. They have no sort key.
    pub origin_key: String,
    /// The table of the copies.
    pub target: String,
    /// The index that finds the copies of an origin.
    pub index: String,
    /// The attribute of a copy that holds its origin's key. It is the partition key of the index.
    pub index_key: String,
    /// The sort key attributes of the index; empty if the index has no sort key. They are read from
    /// the description of the table, not from the declaration. Jobs page through the copies in the
    /// order of this sort key.
    pub index_sort: Vec<String>,
    /// The copied attributes. The keys are attributes of the copy, and the values are attributes of
    /// the origin.
    pub attributes: BTreeMap<String, String>,
    /// The treatment of the copies when their origin is deleted.
    pub on_delete: OnDelete,
    /// The other rules that write to the origins, by name. The value is true if the rule writes an
    /// attribute that this rule copies. A mark of any other rule on an origin comes from another
    /// deployment.
    pub writers: BTreeMap<String, bool>,
    /// The rules that write to the copies, by name, including this rule. The value is true if the
    /// rule writes the attribute with the key of a copy's origin. A mark of any other rule on a
    /// copy comes from another deployment.
    pub siblings: BTreeMap<String, bool>,
}
