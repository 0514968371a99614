//! Encodes an item's JSON as stored bytes without decoding it to an item. This is faster, and most
//! puts store the request's item unchanged.
//!
//! Like `view`, this module returns `None` for any unusual JSON, and the caller falls back to
//! `decode`.

use super::view::{ItemView, ValueView};
use crate::attribute_value::{CONTAINER_OVERHEAD, MEMBER_OVERHEAD};
use crate::encoded_item::EncodedItem;
use crate::encoding::{Tag, begin_item, finish_item, put_bytes, put_length};
use crate::limits::ATTRIBUTE_NAME_BYTES_MAX;
use crate::number::Number;

/// Encodes an item. Returns `None` for names that DynamoDB rejects. The caller passes the same
/// `buffer` to several calls, to save allocations.
pub(super) fn encode_item(view: &ItemView<'_>, buffer: &mut Vec<u8>) -> Option<EncodedItem> {
    begin_item(buffer);
    let size = put_members(buffer, view, 0)?;
    finish_item(buffer, size);
    Some(EncodedItem::from_stored(buffer.as_slice()))
}

/// Appends members, and returns their size. Each member adds `overhead` bytes to the size of its
/// name and value.
fn put_members(out: &mut Vec<u8>, members: &ItemView<'_>, overhead: usize) -> Option<usize> {
    put_length(out, members.len());
    let mut size = 0;
    for (name, value) in members.iter() {
        if name.is_empty() || name.len() > ATTRIBUTE_NAME_BYTES_MAX {
            return None;
        }
        put_bytes(out, name.as_bytes());
        size += name.len() + overhead + put_value(out, value)?;
    }
    Some(size)
}

/// Appends a value, and returns its size.
fn put_value(out: &mut Vec<u8>, value: &ValueView<'_>) -> Option<usize> {
    Some(match value {
        ValueView::S(text) => {
            out.push(Tag::S as u8);
            put_sized(out, text.as_bytes())
        }
        ValueView::N(text) => {
            out.push(Tag::N as u8);
            put_number(out, &text.parse().ok()?)
        }
        ValueView::B(bytes) => {
            out.push(Tag::B as u8);
            put_sized(out, bytes)
        }
        ValueView::Bool(flag) => {
            out.push(if *flag { Tag::True } else { Tag::False } as u8);
            1
        }
        ValueView::Null => {
            out.push(Tag::Null as u8);
            1
        }
        ValueView::M(members) => {
            out.push(Tag::M as u8);
            CONTAINER_OVERHEAD + put_members(out, members, MEMBER_OVERHEAD)?
        }
        ValueView::L(members) => {
            put_count(out, Tag::L, members.len());
            let mut size = CONTAINER_OVERHEAD;
            for member in members {
                size += MEMBER_OVERHEAD + put_value(out, member)?;
            }
            size
        }
        ValueView::Ss(texts) => {
            put_count(out, Tag::Ss, texts.len());
            texts.iter().map(|text| put_sized(out, text.as_bytes())).sum()
        }
        ValueView::Ns(numbers) => {
            put_count(out, Tag::Ns, numbers.len());
            numbers.iter().map(|number| put_number(out, number)).sum()
        }
        ValueView::Bs(all) => {
            put_count(out, Tag::Bs, all.len());
            all.iter().map(|bytes| put_sized(out, bytes)).sum()
        }
    })
}

fn put_count(out: &mut Vec<u8>, tag: Tag, count: usize) {
    out.push(tag as u8);
    put_length(out, count);
}

fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    put_bytes(out, bytes);
    bytes.len()
}

fn put_number(out: &mut Vec<u8>, number: &Number) -> usize {
    number.encode_ordered(out);
    number.size()
}
