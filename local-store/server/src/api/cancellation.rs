//! Why a transaction was cancelled: the member `CancellationReasons`, in the service's words.
//!
//! Source: AWS, "TransactWriteItems", reasons for cancellation. The error itself is in `error`.

use partition::CancellationReason;

use super::answer::{item_member, text_member};

/// An item collection that would become too large.
pub(super) const COLLECTION_TOO_LARGE: &str = "Collection size exceeded.";
/// An insert of an item that is there.
pub(super) const DUPLICATE_ITEM: &str = "Duplicate primary key exists in table";

/// A table that is not there.
pub(super) const TABLE_NOT_FOUND: &str = "Requested resource not found";

/// How the service calls the reason of one operation.
pub(super) fn reason_code(reason: &CancellationReason) -> &'static str {
    match reason {
        CancellationReason::None => "None",
        CancellationReason::ConditionFailed { .. } => "ConditionalCheckFailed",
        CancellationReason::Invalid(_) => "ValidationError",
        CancellationReason::DuplicateItem => "DuplicateItem",
        CancellationReason::Conflict => "TransactionConflict",
        CancellationReason::Throttled { is_provisioned: true, .. } => {
            "ProvisionedThroughputExceeded"
        }
        CancellationReason::Throttled { is_provisioned: false, .. } => "ThrottlingError",
        CancellationReason::ItemCollectionTooLarge => "ItemCollectionSizeLimitExceeded",
        CancellationReason::TableNotFound => "ResourceNotFound",
    }
}

/// Appends the member `CancellationReasons`, if there are any.
pub(super) fn write_reasons(body: &mut String, reasons: &[CancellationReason]) {
    for (position, reason) in reasons.iter().enumerate() {
        body.push_str(if position == 0 { ",\"CancellationReasons\":[{" } else { ",{" });
        text_member(body, "Code", reason_code(reason));
        match reason {
            CancellationReason::None => {}
            CancellationReason::ConditionFailed { item } => {
                text_member(body, "Message", "The conditional request failed");
                if let Some(item) = item {
                    item_member(body, "Item", item);
                }
            }
            CancellationReason::ItemCollectionTooLarge => {
                text_member(body, "Message", COLLECTION_TOO_LARGE);
            }
            CancellationReason::Invalid(text) | CancellationReason::Throttled { text, .. } => {
                text_member(body, "Message", text);
            }
            CancellationReason::DuplicateItem => text_member(body, "Message", DUPLICATE_ITEM),
            CancellationReason::TableNotFound => text_member(body, "Message", TABLE_NOT_FOUND),
            CancellationReason::Conflict => {
                text_member(body, "Message", "Transaction is ongoing for the item");
            }
        }
        body.push('}');
    }
    if !reasons.is_empty() {
        body.push(']');
    }
}
