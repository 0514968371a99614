//! `weir versions restore`: makes an item be what a version says.
//!
//! The write is an ordinary change of the item, so it becomes the next version, and what it replaces
//! stands in the history. It happens only while the item is what the current version says.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use model::{Item, json};
use rules::versions::Version;

use super::Place;
use crate::exit::Exit;
use crate::load::{error_text, from_sdk_item, to_sdk_item, to_sdk_value};
use crate::output::{say, show};

/// Attributes that the condition compares at most: an expression has at most 300 operators.
const COMPARED_MAX: usize = 100;

/// Restores `version`, or says what would be written.
///
/// # Errors
/// When the item cannot be read or written.
pub(super) async fn run(
    place: &Place,
    key: &Item,
    versions: &[Version],
    version: &Version,
    without: &[String],
    dry_run: bool,
) -> Result<Exit, String> {
    let mut wanted = version.image.clone();
    if let Some(image) = &mut wanted {
        image.retain(|name, _| key.contains_key(name) || !without.contains(name));
    }
    let current = versions.last().and_then(|version| version.image.clone());
    if dry_run {
        show(&format!(
            "{}\n",
            wanted.as_ref().map_or_else(|| "null".to_owned(), json::item_to_string)
        ));
        return Ok(Exit::Done);
    }
    if read(place, key).await? != current {
        say(
            "refused: the item is not what the current version says: it was changed a moment ago; try again",
        );
        return Ok(Exit::Refused);
    }
    if wanted == current {
        say("the item is so already");
        return Ok(Exit::Done);
    }
    let written = match &wanted {
        Some(image) => put(place, image, current.as_ref()).await?,
        None => delete(place, key, current.as_ref()).await?,
    };
    if !written {
        say("refused: the item was changed at this moment; nothing was written, try again");
        return Ok(Exit::Refused);
    }
    say(&format!("restored version {} of {}", version.number, rules::versions::history_key(key)));
    Ok(Exit::Done)
}

async fn read(place: &Place, key: &Item) -> Result<Option<Item>, String> {
    let request = place.client.get_item().table_name(&place.table).consistent_read(true);
    let answer = request.set_key(Some(to_sdk_item(key))).send().await;
    let answer = answer.map_err(|error| format!("cannot read the item: {}", error_text(&error)))?;
    answer.item.map(from_sdk_item).transpose()
}

/// The condition that an item is still what it was, with its names and values.
struct Condition {
    text: String,
    names: BTreeMap<String, String>,
    values: BTreeMap<String, SdkValue>,
}

fn is_still(current: Option<&Item>) -> Condition {
    let (mut terms, mut names, mut values) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for (number, (name, value)) in current.into_iter().flatten().take(COMPARED_MAX).enumerate() {
        terms.push(format!("#n{number} = :v{number}"));
        names.insert(format!("#n{number}"), name.clone());
        values.insert(format!(":v{number}"), to_sdk_value(value));
    }
    Condition { text: terms.join(" AND "), names, values }
}

async fn put(place: &Place, image: &Item, current: Option<&Item>) -> Result<bool, String> {
    let request = place.client.put_item().table_name(&place.table);
    let mut request = request.set_item(Some(to_sdk_item(image)));
    if current.is_some() {
        let condition = is_still(current);
        request = request
            .condition_expression(condition.text)
            .set_expression_attribute_names(Some(condition.names.into_iter().collect()))
            .set_expression_attribute_values(Some(condition.values.into_iter().collect()));
    } else if let Some(name) = image.keys().next() {
        // An item that is not there has no attribute at all.
        request = request
            .condition_expression("attribute_not_exists(#any)")
            .expression_attribute_names("#any", name);
    }
    match request.send().await {
        Ok(_) => Ok(true),
        Err(error)
            if error
                .as_service_error()
                .is_some_and(|e| e.is_conditional_check_failed_exception()) =>
        {
            Ok(false)
        }
        Err(error) => Err(format!("cannot write the item: {}", error_text(&error))),
    }
}

async fn delete(place: &Place, key: &Item, current: Option<&Item>) -> Result<bool, String> {
    let condition = is_still(current);
    let request = place.client.delete_item().table_name(&place.table);
    let request = request
        .set_key(Some(to_sdk_item(key)))
        .condition_expression(condition.text)
        .set_expression_attribute_names(Some(condition.names.into_iter().collect()))
        .set_expression_attribute_values(Some(condition.values.into_iter().collect()));
    match request.send().await {
        Ok(_) => Ok(true),
        Err(error)
            if error
                .as_service_error()
                .is_some_and(|e| e.is_conditional_check_failed_exception()) =>
        {
            Ok(false)
        }
        Err(error) => Err(format!("cannot delete the item: {}", error_text(&error))),
    }
}

#[cfg(test)]
mod tests {
    use model::Number;

    use super::*;

    #[test]
    fn the_condition_compares_every_attribute() {
        let item = Item::new().with("a", "x").with("b", Number::from(1u64));
        let condition = is_still(Some(&item));
        assert_eq!(condition.text, "#n0 = :v0 AND #n1 = :v1");
        assert_eq!(condition.names["#n1"], "b");
        assert_eq!(condition.values[":v1"], SdkValue::N("1".to_owned()));
    }
}
