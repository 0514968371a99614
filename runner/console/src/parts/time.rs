//! Times and durations.

use jiff::Timestamp;
use maud::{Markup, html};

/// Returns a time in UTC as a string, to the second.
pub(crate) fn text(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds);
    time.map_or("–".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// Returns the HTML of a time in UTC, to the second. Times of records are by the store's clock.
pub(crate) fn seconds(seconds: i64) -> Markup {
    match Timestamp::from_second(seconds) {
        Ok(time) => html! { time datetime=(time.to_string()) { (text(seconds)) } },
        Err(_) => html! { "–" },
    }
}

/// Returns the HTML of a time in UTC, to the second, from milliseconds since 1970.
pub(crate) fn millis(millis: i64) -> Markup {
    seconds(millis.div_euclid(1_000))
}

/// Returns a duration as a string, in the largest unit in which it is at least 2.
pub(crate) fn duration(millis: i64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let unit = units.iter().find(|(size, _)| millis >= 2 * size);
    unit.map_or_else(|| format!("{millis} ms"), |(size, name)| format!("{} {name}", millis / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (millis, text) in [
            (0, "0 ms"),
            (1_999, "1999 ms"),
            (2_000, "2 s"),
            (119_999, "119 s"),
            (120_000, "2 min"),
            (7_200_000, "2 h"),
            (172_800_000, "2 d"),
        ] {
            assert_eq!(duration(millis), text);
        }
        assert!(seconds(0).into_string().contains("1970-01-01 00:00:00"));
        assert_eq!(seconds(i64::MAX).into_string(), "–");
    }
}
