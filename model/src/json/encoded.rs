//! Converts an item's stored bytes to JSON without decoding them to an item. This is faster, and
//! most reads return complete items unchanged.

use super::encode::{self, write_binary, write_string};
use crate::attribute_value::AttributeType;
use crate::encoding::{DEPTH_MAX, EncodingError, Reader, Tag};

/// Appends the JSON of an item from its stored bytes, and returns the item's size in bytes. After
/// an error, the appended text is not valid JSON.
///
/// # Errors
/// When the bytes are damaged.
pub fn write_encoded_item(out: &mut String, bytes: &[u8]) -> Result<usize, EncodingError> {
    let (mut reader, size) = Reader::of_item(bytes)?;
    write_members(out, &mut reader, DEPTH_MAX)?;
    reader.end()?;
    Ok(size)
}

fn write_members(
    out: &mut String,
    reader: &mut Reader<'_>,
    depth: usize,
) -> Result<(), EncodingError> {
    let count = reader.count()?;
    out.push('{');
    for position in 0..count {
        if position > 0 {
            out.push(',');
        }
        write_text(out, reader)?;
        out.push(':');
        write_value(out, reader, depth)?;
    }
    out.push('}');
    Ok(())
}

fn write_value(
    out: &mut String,
    reader: &mut Reader<'_>,
    depth: usize,
) -> Result<(), EncodingError> {
    let depth = depth.checked_sub(1).ok_or_else(|| reader.error("nested too deeply"))?;
    let tag = reader.tag()?;
    out.push_str("{\"");
    out.push_str(kind(tag).descriptor());
    out.push_str("\":");
    match tag {
        Tag::S => write_text(out, reader)?,
        Tag::N => write_number(out, reader)?,
        Tag::B => write_bytes(out, reader)?,
        Tag::False => out.push_str("false"),
        Tag::True | Tag::Null => out.push_str("true"),
        Tag::M => write_members(out, reader, depth)?,
        Tag::L => write_array(out, reader, |out, reader| write_value(out, reader, depth))?,
        Tag::Ss => write_array(out, reader, write_text)?,
        Tag::Ns => write_array(out, reader, write_number)?,
        Tag::Bs => write_array(out, reader, write_bytes)?,
    }
    out.push('}');
    Ok(())
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
    mut member: impl FnMut(&mut String, &mut Reader<'_>) -> Result<(), EncodingError>,
) -> Result<(), EncodingError> {
    let count = reader.count()?;
    out.push('[');
    for position in 0..count {
        if position > 0 {
            out.push(',');
        }
        member(out, reader)?;
    }
    out.push(']');
    Ok(())
}

fn write_text(out: &mut String, reader: &mut Reader<'_>) -> Result<(), EncodingError> {
    write_string(out, reader.str()?);
    Ok(())
}

fn write_number(out: &mut String, reader: &mut Reader<'_>) -> Result<(), EncodingError> {
    encode::write_number(out, &reader.number()?);
    Ok(())
}

fn write_bytes(out: &mut String, reader: &mut Reader<'_>) -> Result<(), EncodingError> {
    write_binary(out, reader.slice()?);
    Ok(())
}
