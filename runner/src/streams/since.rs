//! Parses a time in the past from the forms that users write: `14:05`, `10m`, or `2026-11-28T14:05:00Z`.
//!
//! All times are UTC by the store's clock, as `weir streams tail` prints them.

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, civil, tz::TimeZone};

/// The reason why a value of `--since` is rejected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum SinceError {
    #[error(
        "--since takes a time of day in UTC (14:05), a duration (10m, 2h, 1d), or 2026-11-28T14:05:00Z; not `{0}`"
    )]
    Unreadable(String),
    #[error("--since is later than the store's clock, which shows {now}: `{text}`")]
    Future { text: String, now: Timestamp },
}

/// Returns the time in seconds since 1970. A time of day means its last occurrence before `now_seconds`.
/// A duration counts back from `now_seconds`; a day has 24 hours.
///
/// # Errors
/// The text has a different form, or the time is later than `now_seconds`.
pub(super) fn read(text: &str, now_seconds: i64) -> Result<i64, SinceError> {
    let unreadable = || SinceError::Unreadable(text.to_owned());
    let now = Timestamp::from_second(now_seconds).map_err(|_| unreadable())?;
    let moment = if let Ok(moment) = text.parse::<Timestamp>() {
        moment
    } else if let Ok(time) = text.parse::<civil::Time>() {
        let today = now.to_zoned(TimeZone::UTC).with().time(time).build();
        let today = today.map_err(|_| unreadable())?.timestamp();
        let day = SignedDuration::from_hours(24);
        if today > now { today.checked_sub(day).map_err(|_| unreadable())? } else { today }
    } else {
        let span: Span = text.parse().map_err(|_| unreadable())?;
        let duration = span.to_duration(SpanRelativeTo::days_are_24_hours());
        now.checked_sub(duration.map_err(|_| unreadable())?).map_err(|_| unreadable())?
    };
    if moment > now {
        return Err(SinceError::Future { text: text.to_owned(), now });
    }
    Ok(moment.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_parsed_in_each_form() {
        let now: Timestamp = "2026-11-28T15:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("14:05", Some("2026-11-28T14:05:00Z")),
            ("14:05:30", Some("2026-11-28T14:05:30Z")),
            ("15:01", Some("2026-11-27T15:01:00Z")),
            ("10m", Some("2026-11-28T14:50:00Z")),
            ("1h30m", Some("2026-11-28T13:30:00Z")),
            ("1d", Some("2026-11-27T15:00:00Z")),
            ("1w", Some("2026-11-21T15:00:00Z")),
            ("1mo", None),
            ("2026-11-28T14:05:00Z", Some("2026-11-28T14:05:00Z")),
            ("2026-11-28T15:05:00+01:00", Some("2026-11-28T14:05:00Z")),
            ("2026-11-28T15:00:01Z", None),
            ("-10m", None),
            ("25:00", None),
            ("yesterday", None),
            ("", None),
        ] {
            let expected: Option<Timestamp> = expected.map(|text| text.parse().unwrap());
            let found = read(text, now.as_second());
            assert_eq!(found.ok(), expected.map(|time| time.as_second()), "{text}");
        }
    }
}
