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

/// What became of one operation of a transaction that was not made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reason {
    /// The state of the store stands against it, or nothing does.
    OfState(CancellationReason),
    /// It was to insert an item that is there already.
    DuplicateItem,
    /// It was not even tried, because it is beyond the throughput of its table.
    Throttled {
        /// Whether the table's throughput is provisioned.
        is_provisioned: bool,
        /// DynamoDB's own words.
        text: String,
    },
    /// It was not even tried, because its table is not there.
    TableNotFound,
}

impl Reason {
    /// Nothing stands against the operation.
    pub(crate) const NONE: Self = Self::OfState(CancellationReason::None);

    /// It cannot be made, in DynamoDB's own words.
    pub(crate) fn invalid(text: String) -> Self {
        Self::OfState(CancellationReason::Invalid(text))
    }
}

impl From<CancellationReason> for Reason {
    fn from(reason: CancellationReason) -> Self {
        Self::OfState(reason)
    }
}

/// How the service calls the reason of one operation.
pub(super) fn reason_code(reason: &Reason) -> &'static str {
    match reason {
        Reason::OfState(reason) => code_of_state(reason),
        Reason::DuplicateItem => "DuplicateItem",
        Reason::Throttled { is_provisioned: true, .. } => "ProvisionedThroughputExceeded",
        Reason::Throttled { is_provisioned: false, .. } => "ThrottlingError",
        Reason::TableNotFound => "ResourceNotFound",
    }
}

fn code_of_state(reason: &CancellationReason) -> &'static str {
    match reason {
        CancellationReason::None => "None",
        CancellationReason::ConditionFailed { .. } => "ConditionalCheckFailed",
        CancellationReason::Invalid(_) => "ValidationError",
        CancellationReason::Conflict => "TransactionConflict",
        CancellationReason::ItemCollectionTooLarge => "ItemCollectionSizeLimitExceeded",
    }
}

/// Appends the member `CancellationReasons`, if there are any.
pub(super) fn write_reasons(body: &mut String, reasons: &[Reason]) {
    for (position, reason) in reasons.iter().enumerate() {
        body.push_str(if position == 0 { ",\"CancellationReasons\":[{" } else { ",{" });
        text_member(body, "Code", reason_code(reason));
        match reason {
            Reason::OfState(reason) => write_message_of_state(body, reason),
            Reason::DuplicateItem => text_member(body, "Message", DUPLICATE_ITEM),
            Reason::Throttled { text, .. } => text_member(body, "Message", text),
            Reason::TableNotFound => text_member(body, "Message", TABLE_NOT_FOUND),
        }
        body.push('}');
    }
    if !reasons.is_empty() {
        body.push(']');
    }
}

fn write_message_of_state(body: &mut String, reason: &CancellationReason) {
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
        CancellationReason::Invalid(text) => text_member(body, "Message", text),
        CancellationReason::Conflict => {
            text_member(body, "Message", "Transaction is ongoing for the item");
        }
    }
}
