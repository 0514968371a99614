//! `TagResource`, `UntagResource` and `ListTagsOfResource`: add, remove and return the tags of a table.
//!
//! Error messages and limits are those of DynamoDB. Source: AWS, "Tagging restrictions in DynamoDB".

use std::collections::BTreeMap;
use std::sync::Arc;

use partition::{Command, OptionChange, Reply, Table, UpdateTable};

use super::answer::{begin_member, text_member};
use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::resource_arn::{self, ResourceArn};
use crate::store::Store;

/// The maximum number of tags of one resource, inclusive.
const TAGS_MAX: usize = 50;
/// The maximum length of a tag's key in characters, inclusive.
const KEY_LENGTH_MAX: usize = 128;
/// The maximum length of a tag's value in characters, inclusive.
const VALUE_LENGTH_MAX: usize = 256;

/// The maximum total size of the keys and values of a resource's tags in bytes, inclusive. Source:
/// AWS, "Using tags with DynamoDB".
const BYTES_MAX: usize = 10 * 1024;

/// Tags, as they were sent.
pub(crate) type TagParameters<'j> = Vec<(Option<&'j str>, Option<&'j str>)>;

/// Reads the list `Tags`.
pub(crate) fn read_tags(parameters: Parameters<'_>) -> Result<Option<TagParameters<'_>>, ApiError> {
    let Some(tags) = parameters.structures("Tags", "Tag")? else {
        return Ok(None);
    };
    tags.into_iter()
        .map(|tag| Ok((tag.string("Key")?, tag.string("Value")?)))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Checks the tags `given` that a request adds to a resource, and returns them.
pub(crate) fn check_tags(
    given: &TagParameters<'_>,
    present: Option<&BTreeMap<String, String>>,
) -> Result<BTreeMap<String, String>, ApiError> {
    let mut tags = BTreeMap::new();
    for (key, value) in given {
        let key = check_key(*key)?;
        let value = match value {
            Some(value) if is_allowed(value, 0, VALUE_LENGTH_MAX) => (*value).to_owned(),
            other => {
                return Err(ApiError::validation(format!(
                    "The Tag Value provided is invalid, Value: {}",
                    other.unwrap_or("null")
                )));
            }
        };
        if tags.insert(key.clone(), value).is_some() {
            return Err(ApiError::validation(format!(
                "Duplicate Tag Keys provided as input: Duplicate Tag Key found {key}"
            )));
        }
    }
    let present = present.into_iter().flatten().filter(|(key, _)| !tags.contains_key(*key));
    let (mut count, mut bytes) = (0, 0);
    for (key, value) in tags.iter().chain(present) {
        count += 1;
        bytes += key.len() + value.len();
    }
    if count > TAGS_MAX {
        return Err(too_many());
    }
    if bytes > BYTES_MAX {
        return Err(ApiError::validation(format!(
            "The tags of the resource would have {bytes} bytes, keys and values together; the maximum is {BYTES_MAX}: remove tags, or shorten them"
        )));
    }
    Ok(tags)
}

fn too_many() -> ApiError {
    ApiError::validation("Number of Tags exceed the current limit for the provided ResourceArn")
}

fn check_key(key: Option<&str>) -> Result<String, ApiError> {
    match key {
        Some(key) if !is_allowed(key, 1, KEY_LENGTH_MAX) => {}
        Some(key) if key.to_ascii_lowercase().starts_with("aws:") => {
            return Err(ApiError::validation(format!(
                "Tag Key cannot be prefixed with aws:, Key: {key}"
            )));
        }
        Some(key) => return Ok(key.to_owned()),
        None => {}
    }
    let shown = key.unwrap_or("null");
    Err(ApiError::validation(format!("The Tag Key provided is invalid, Key: {shown}")))
}

/// Returns whether a string has `min` to `max` characters, all of them allowed: letters and digits of
/// any script, spaces, and `+ - = . _ : / @`.
fn is_allowed(text: &str, min: usize, max: usize) -> bool {
    let allowed = |c: char| c.is_alphanumeric() || c.is_whitespace() || "+-=._:/@".contains(c);
    (min..=max).contains(&text.chars().count()) && text.chars().all(allowed)
}

/// Finds the table that `ResourceArn` names.
fn find(store: &Store, arn: &str) -> Result<Arc<Table>, ApiError> {
    match resource_arn::parse(store, arn)? {
        ResourceArn::Table(name) => store.find_table(name).ok_or_else(|| {
            ApiError::resource_missing(format!(
                "Requested resource not found: ResourceArn: {arn} not found"
            ))
        }),
        ResourceArn::Elsewhere => Err(ApiError::validation(format!(
            "Invalid TableArn: Invalid ResourceArn provided as input {arn}"
        ))),
        ResourceArn::Foreign => Err(ApiError::access_denied()),
    }
}

pub(super) async fn tag_resource(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let arn = parameters.string("ResourceArn")?;
    let tags = read_tags(parameters)?;
    let mut constraints = Constraints::new();
    constraints.required("resourceArn", arn.is_some());
    constraints.required("tags", tags.is_some());
    constraints.finish()?;
    let (arn, tags) = (arn.unwrap_or_default(), tags.unwrap_or_default());
    if tags.is_empty() {
        return Err(ApiError::validation("Atleast one Tag needs to be provided as Input."));
    }
    check_tags(&tags, None)?;
    let table = find(store, arn)?;
    let tags = check_tags(&tags, Some(&table.options.tags))?;
    change(store, &table, OptionChange::Tag(tags)).await
}

pub(super) async fn untag_resource(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let arn = parameters.string("ResourceArn")?;
    let keys = parameters.texts("TagKeys")?;
    let mut constraints = Constraints::new();
    constraints.required("resourceArn", arn.is_some());
    constraints.required("tagKeys", keys.is_some());
    constraints.finish()?;
    let (arn, keys) = (arn.unwrap_or_default(), keys.unwrap_or_default());
    if keys.is_empty() {
        return Err(ApiError::validation("Atleast one Tag Key needs to be provided as Input."));
    }
    let keys: Vec<String> =
        keys.into_iter().map(|key| check_key(Some(key))).collect::<Result<_, _>>()?;
    if keys.len() > TAGS_MAX {
        return Err(too_many());
    }
    let table = find(store, arn)?;
    change(store, &table, OptionChange::Untag(keys)).await
}

async fn change(store: &Store, table: &Table, change: OptionChange) -> Result<String, ApiError> {
    let update = UpdateTable::of_options(table.id, vec![change]);
    let replies = store.submit(vec![Command::UpdateTable(Box::new(update))]).await?;
    match replies.into_iter().next() {
        // Like DynamoDB, returns an empty body.
        Some(Reply::Table(_)) => Ok(String::new()),
        Some(Reply::TableNotFound) => Err(ApiError::resource_not_found()),
        _ => Err(ApiError::defect("a change of tags returned an unexpected reply")),
    }
}

pub(super) fn list_tags_of_resource(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let arn = parameters.string("ResourceArn")?;
    // All tags of a resource fit into one response, so the store never returns a `NextToken`. Like
    // DynamoDB, it ignores an unknown token.
    parameters.string("NextToken")?;
    let mut constraints = Constraints::new();
    constraints.required("resourceArn", arn.is_some());
    constraints.finish()?;
    let table = find(store, arn.unwrap_or_default())?;
    let mut out = String::from("{");
    begin_member(&mut out, "Tags");
    out.push('[');
    for (position, (key, value)) in table.options.tags.iter().enumerate() {
        out.push_str(if position > 0 { ",{" } else { "{" });
        text_member(&mut out, "Key", key);
        text_member(&mut out, "Value", value);
        out.push('}');
    }
    out.push_str("]}");
    Ok(out)
}
