//! From an item's stored bytes straight to its JSON, without an item in between: what a read
//! answers with is mostly what is stored.

use super::encode::{write_binary, write_string};
use crate::attribute_value::{AttributeType, CONTAINER_OVERHEAD, MEMBER_OVERHEAD};
use crate::encoding::{DEPTH_MAX, EncodingError, Reader, Tag};
use std::fmt::Write as _;

/// Appends the JSON of an item that `encoding::encode_item` wrote, and gives the item's size in
/// bytes. What was appended before an error is no JSON.
///
/// # Errors
/// When the bytes are damaged.
pub fn write_encoded_item(out: &mut String, bytes: &[u8]) -> Result<usize, EncodingError> {
    let mut reader = Reader::start(bytes)?;
    let size = write_members(out, &mut reader, DEPTH_MAX, 0)?;
    reader.end()?;
    Ok(size)
}

/// Each member takes `overhead` beside its name and value.
fn write_members(
    out: &mut String,
    reader: &mut Reader<'_>,
    depth: usize,
    overhead: usize,
) -> Result<usize, EncodingError> {
    let count = reader.count()?;
    let mut size = 0;
    out.push('{');
    for position in 0..count {
        if position > 0 {
            out.push(',');
        }
        let name = reader.str()?;
        write_string(out, name);
        out.push(':');
        size += name.len() + overhead + write_value(out, reader, depth)?;
    }
    out.push('}');
    Ok(size)
}

/// Appends a value and gives its size.
fn write_value(
    out: &mut String,
    reader: &mut Reader<'_>,
    depth: usize,
) -> Result<usize, EncodingError> {
    let depth = depth.checked_sub(1).ok_or_else(|| reader.error("nested too deeply"))?;
    let tag = reader.tag()?;
    out.push_str("{\"");
    out.push_str(kind(tag).descriptor());
    out.push_str("\":");
    let size = match tag {
        Tag::S => write_text(out, reader)?,
        Tag::N => write_number(out, reader)?,
        Tag::B => write_bytes(out, reader)?,
        Tag::False | Tag::True | Tag::Null => {
            out.push_str(if matches!(tag, Tag::False) { "false" } else { "true" });
            1
        }
        Tag::M => CONTAINER_OVERHEAD + write_members(out, reader, depth, MEMBER_OVERHEAD)?,
        Tag::L => {
            let member = |out: &mut String, reader: &mut Reader<'_>| {
                Ok(MEMBER_OVERHEAD + write_value(out, reader, depth)?)
            };
            CONTAINER_OVERHEAD + write_array(out, reader, member)?
        }
        Tag::Ss => write_array(out, reader, write_text)?,
        Tag::Ns => write_array(out, reader, write_number)?,
        Tag::Bs => write_array(out, reader, write_bytes)?,
    };
    out.push('}');
    Ok(size)
}

fn kind(tag: Tag) -> AttributeType {
    match tag {
        Tag::S => AttributeType::S,
        Tag::N => AttributeType::N,
        Tag::B => AttributeType::B,
        Tag::False | Tag::True => AttributeType::Bool,
        Tag::Null => AttributeType::Null,
        Tag::M => AttributeType::M,
        Tag::L => AttributeType::L,
        Tag::Ss => AttributeType::Ss,
        Tag::Ns => AttributeType::Ns,
        Tag::Bs => AttributeType::Bs,
    }
}

fn write_array(
    out: &mut String,
    reader: &mut Reader<'_>,
    mut member: impl FnMut(&mut String, &mut Reader<'_>) -> Result<usize, EncodingError>,
) -> Result<usize, EncodingError> {
    let count = reader.count()?;
    let mut size = 0;
    out.push('[');
    for position in 0..count {
        if position > 0 {
            out.push(',');
        }
        size += member(out, reader)?;
    }
    out.push(']');
    Ok(size)
}

fn write_text(out: &mut String, reader: &mut Reader<'_>) -> Result<usize, EncodingError> {
    let text = reader.str()?;
    write_string(out, text);
    Ok(text.len())
}

fn write_number(out: &mut String, reader: &mut Reader<'_>) -> Result<usize, EncodingError> {
    let number = reader.number()?;
    let _ = write!(out, "\"{number}\"");
    Ok(number.size())
}

fn write_bytes(out: &mut String, reader: &mut Reader<'_>) -> Result<usize, EncodingError> {
    let bytes = reader.slice()?;
    write_binary(out, bytes);
    Ok(bytes.len())
}
