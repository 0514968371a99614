//! Parses schedules: the events `Schedule` and `ScheduleV2` of a function. `schedule_expression`
//! computes the times of the schedules.

use crate::{
    diagnostic::Span,
    evaluation::properties::{Catalogue, Properties},
    schedule_expression::Schedule as Expression,
    stack::Schedule,
};

const NOT_EMULATED: Catalogue = &[
    ("DeadLetterConfig", "an invocation that fails is only logged"),
    ("Description", "descriptions are shown only on AWS"),
    ("EndDate", "the schedule runs as long as `weir up`"),
    ("FlexibleTimeWindow", "functions are invoked at the exact scheduled time"),
    ("GroupName", "schedules have no groups"),
    ("KmsKeyArn", "the input is not encrypted"),
    ("Name", "the schedule's name is its logical id"),
    ("OmitName", "the schedule's name is its logical id"),
    ("PermissionsBoundary", "permissions are not checked"),
    (
        "RetryPolicy",
        "the function is always reachable; a failed invocation is retried as on Lambda",
    ),
    ("RoleArn", "permissions are not checked"),
    ("ScheduleExpressionTimezone", "times are in UTC"),
    ("StartDate", "the schedule starts with `weir up`"),
];

/// Parses one schedule; `None` if an error was reported.
///
/// `expression_property` is `Schedule` for a rule of EventBridge, and `ScheduleExpression` for
/// EventBridge Scheduler.
pub(crate) fn read(
    properties: &Properties<'_, '_>,
    expression_property: &'static str,
    logical_id: String,
    retries: u32,
    at: Span,
) -> Option<Schedule> {
    let findings = properties.resolver.findings;
    let text = properties.required_text(expression_property, "rate(1 minute)");
    let by_state = properties.choice("State", &[("ENABLED", true), ("DISABLED", false)]);
    let by_flag = properties.boolean("Enabled");
    let input = properties.text("Input");
    properties.finish(NOT_EMULATED);
    if let Some(input) = &input
        && let Err(error) = serde_json::from_str::<serde_json::Value>(&input.value)
    {
        findings.error(
            input.at,
            format!("the input is not JSON: {error}"),
            r#"write JSON in single quotes, such as `Input: '{"kind":"hourly"}'`"#,
        );
    }
    let text = text?;
    if text.value.starts_with("at(") {
        properties.not_emulated(
            expression_property,
            "a one-time schedule does not run and does not invoke the function",
        );
        return None;
    }
    let expression = match text.value.parse::<Expression>() {
        Ok(expression) => expression,
        Err(error) => {
            findings.error(
                text.at,
                format!("`{}` is not a schedule expression", text.value),
                error.problem.to_string(),
            );
            return None;
        }
    };
    Some(Schedule {
        logical_id,
        function: properties.resource.to_owned(),
        expression,
        input: input.map(|input| input.value),
        retries,
        enabled: by_state.map(|state| state.value).or(by_flag).unwrap_or(true),
        at,
    })
}
