//! Replaces attributes of an item in its stored form; all other attributes are copied unchanged.

use std::iter::Peekable;

use super::{EncodedItem, skip};
use crate::encoding::{
    DEPTH_MAX, EncodingError, Reader, begin_item, finish_item, put_length, put_member,
};
use crate::item::Item;

impl EncodedItem {
    /// Returns the item without the attributes of `old` and with the attributes of `new`. `old`
    /// must be the result of [`EncodedItem::decode_only`] for a set of names, and `new` may have
    /// only attributes from this set.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn with_replaced(&self, old: &Item, new: &Item) -> Result<Self, EncodingError> {
        let (mut reader, size) = Reader::of_item(&self.0)?;
        let count = reader.count()?;
        let mut kept = Vec::with_capacity(count);
        let (mut of_old, mut of_new) = (old.keys().peekable(), new.keys().peekable());
        for _ in 0..count {
            let begin = reader.offset();
            let name = reader.slice()?;
            skip(&mut reader, DEPTH_MAX)?;
            if !is_among(&mut of_old, name) && !is_among(&mut of_new, name) {
                kept.push((name, reader.since(begin)));
            }
        }
        reader.end()?;
        let rest = size.checked_sub(old.size()).ok_or_else(|| {
            reader.error("the item size is less than the size of the attributes to replace")
        })?;
        let new_size = rest + new.size();
        let mut out = Vec::with_capacity(self.0.len() + new.size() + 4 * new.len());
        begin_item(&mut out);
        put_length(&mut out, kept.len() + new.len());
        put_in_order(&mut out, &kept, new);
        finish_item(&mut out, new_size);
        Ok(Self(out.into()))
    }
}

/// Merges the unchanged members and the new members, in the order of their names.
fn put_in_order(out: &mut Vec<u8>, kept: &[(&[u8], &[u8])], new: &Item) {
    let mut kept = kept.iter().peekable();
    for (name, value) in new {
        let is_before = |(other, _): &&(&[u8], &[u8])| *other < name.as_bytes();
        while let Some((_, member)) = kept.next_if(is_before) {
            out.extend_from_slice(member);
        }
        put_member(out, name, value);
    }
    kept.for_each(|(_, member)| out.extend_from_slice(member));
}

/// Returns whether `name` is in `others`, whose names are sorted. Successive calls must pass names
/// in ascending order.
fn is_among<'n>(others: &mut Peekable<impl Iterator<Item = &'n String>>, name: &[u8]) -> bool {
    while others.next_if(|other| other.as_bytes() < name).is_some() {}
    others.peek().is_some_and(|other| other.as_bytes() == name)
}
