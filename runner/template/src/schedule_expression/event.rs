//! The event that a function receives from EventBridge when a schedule is due. The caller decides
//! when the schedule is due.

use jiff::Timestamp;
use serde_json::{Value, json};

/// The values that identify the source of the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSource<'a> {
    /// The rule's name.
    pub rule: &'a str,
    /// The twelve-digit account number.
    pub account: &'a str,
    /// The region.
    pub region: &'a str,
}

/// Returns EventBridge's "Scheduled Event" for `due_ms`, in milliseconds since 1970. As in
/// EventBridge, the time in the event has whole seconds. `id` is the event's unique identifier,
/// which is a UUID on AWS.
///
/// Source: Amazon EventBridge user guide, "Events from AWS services: scheduled events".
#[must_use]
pub fn scheduled_event(source: &EventSource<'_>, id: &str, due_ms: i64) -> Value {
    let EventSource { rule, account, region } = source;
    let due = Timestamp::from_second(due_ms.div_euclid(1_000)).unwrap_or_default();
    json!({
        "version": "0",
        "id": id,
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": account,
        "time": due.to_string(),
        "region": region,
        "resources": [format!("arn:aws:events:{region}:{account}:rule/{rule}")],
        "detail": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_has_every_field_that_eventbridge_sends() {
        let source = EventSource {
            rule: "counters-reconcile",
            account: "123456789012",
            region: "eu-west-1",
        };
        let event =
            scheduled_event(&source, "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa", 1_444_323_186_999);
        assert_eq!(
            event,
            json!({
                "version": "0",
                "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa",
                "detail-type": "Scheduled Event",
                "source": "aws.events",
                "account": "123456789012",
                "time": "2015-10-08T16:53:06Z",
                "region": "eu-west-1",
                "resources": ["arn:aws:events:eu-west-1:123456789012:rule/counters-reconcile"],
                "detail": {},
            })
        );
    }
}
