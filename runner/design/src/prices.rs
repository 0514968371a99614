//! Prices of capacity units and storage, and the computation of costs.
//!
//! Only this module computes prices. The prices are data, because they change and depend on the
//! Region. They do not include free tiers, reserved capacity, streams, backups and data transfer.

use serde::Deserialize;
use thiserror::Error;

/// The built-in list of prices.
const PRICES: &str = include_str!("prices.json");
/// The number of hours in a month, as AWS bills them: 365 days of 24 hours, divided by 12.
const HOURS_PER_MONTH: f64 = 730.0;
/// The number of seconds in a month.
pub const SECONDS_PER_MONTH: f64 = HOURS_PER_MONTH * 3600.0;

/// A list of prices in US dollars.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// The Region of the prices.
    pub region: String,
    /// The date of the prices: `YYYY-MM-DD`.
    pub of: String,
    /// The page that publishes the prices.
    #[serde(default)]
    pub source: String,
    on_demand: OnDemand,
    provisioned: Provisioned,
    storage: Storage,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDemand {
    million_writes: f64,
    million_reads: f64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Provisioned {
    write_unit_hour: f64,
    read_unit_hour: f64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Storage {
    gb_month: f64,
}

/// The error of an invalid list of prices.
#[derive(Debug, Error)]
pub enum PricesError {
    /// The text is not JSON with the members of [`Prices`].
    #[error(
        "invalid file of prices: {0}; write your prices with all members of this example: {example}",
        example = example()
    )]
    Malformed(#[from] serde_json::Error),
    /// A price is below zero, or not a number.
    #[error("the price `{0}` must be 0 or more")]
    Negative(&'static str),
}

/// Returns the help of an option that names a file of prices.
#[must_use]
pub fn option_help() -> String {
    format!("A file of prices in US dollars, with all members of this example: {}", example())
}

/// Returns the built-in prices as one line of JSON.
fn example() -> String {
    PRICES.lines().map(str::trim).collect()
}

impl Prices {
    /// Returns the built-in prices.
    ///
    /// # Errors
    /// The built-in list is malformed, which a test rules out.
    pub fn own() -> Result<Self, PricesError> {
        Self::parse(PRICES)
    }

    /// Parses a list of prices.
    ///
    /// # Errors
    /// The text is not a list of prices, or a price is negative.
    pub fn parse(text: &str) -> Result<Self, PricesError> {
        let prices: Self = serde_json::from_str(text)?;
        let all = [
            ("on_demand.million_writes", prices.on_demand.million_writes),
            ("on_demand.million_reads", prices.on_demand.million_reads),
            ("provisioned.write_unit_hour", prices.provisioned.write_unit_hour),
            ("provisioned.read_unit_hour", prices.provisioned.read_unit_hour),
            ("storage.gb_month", prices.storage.gb_month),
        ];
        match all.into_iter().find(|(_, price)| price.is_nan() || *price < 0.0) {
            Some((name, _)) => Err(PricesError::Negative(name)),
            None => Ok(prices),
        }
    }

    /// Returns the price of this number of units on demand.
    #[must_use]
    pub fn on_demand(&self, writes: f64, reads: f64) -> f64 {
        (writes * self.on_demand.million_writes + reads * self.on_demand.million_reads) / 1e6
    }

    /// Returns the price of provisioned capacity that serves this number of requests. A unit serves
    /// one request per second, so 3,600 requests cost one unit for an hour.
    #[must_use]
    pub fn provisioned(&self, writes: f64, reads: f64) -> f64 {
        let hours = |units: f64| units / 3600.0;
        hours(writes) * self.provisioned.write_unit_hour
            + hours(reads) * self.provisioned.read_unit_hour
    }

    /// Returns the price of a month on demand, for units per second.
    #[must_use]
    pub fn month_on_demand(&self, writes: f64, reads: f64) -> f64 {
        self.on_demand(writes * SECONDS_PER_MONTH, reads * SECONDS_PER_MONTH)
    }

    /// Returns the price of a month of provisioned units. Fractions of a unit are rounded up,
    /// because they cannot be provisioned.
    #[must_use]
    pub fn month_provisioned(&self, write_units: f64, read_units: f64) -> f64 {
        self.provisioned(
            write_units.ceil() * SECONDS_PER_MONTH,
            read_units.ceil() * SECONDS_PER_MONTH,
        )
    }

    /// Returns the price of storing this many bytes for a month.
    #[must_use]
    pub fn month_storage(&self, bytes: f64) -> f64 {
        bytes / crate::capacity::GB * self.storage.gb_month
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(dollars: f64, expected: f64) -> bool {
        (dollars - expected).abs() < 1e-9
    }

    #[test]
    fn a_million_of_each_costs_the_list_price() {
        let prices = Prices::own().unwrap();
        assert!(near(prices.on_demand(1e6, 0.0), 0.625));
        assert!(near(prices.on_demand(0.0, 2e6), 0.25));
        // 3,600 requests in an hour require one provisioned unit.
        assert!(near(prices.provisioned(3600.0, 0.0), 0.00065));
        assert!(near(prices.provisioned(0.0, 7200.0), 0.00026));
        let day = prices.of.split('-').map(|part| part.parse::<u32>().unwrap());
        assert!(day.count() == 3, "{}", prices.of);
    }

    #[test]
    fn the_example_is_one_line_and_can_be_read() {
        assert!(!example().contains('\n'));
        assert_eq!(Prices::parse(&example()).unwrap(), Prices::own().unwrap());
    }

    /// The values are those of AWS's pricing page: 25 GB at 0.25 dollars; one unit for a month of
    /// 730 hours.
    #[test]
    fn a_month_costs_what_aws_publishes() {
        let prices = Prices::own().unwrap();
        assert!(near(prices.month_storage(25.0 * 1_073_741_824.0), 6.25));
        assert!(near(prices.month_provisioned(1.0, 0.0), 0.4745));
        assert!(near(prices.month_provisioned(0.2, 99.5), 0.4745 + 9.49));
        // 10 writes per second are 26.28 million in a month.
        assert!(near(prices.month_on_demand(10.0, 0.0), 16.425));
    }

    #[test]
    fn a_list_with_a_mistake_is_refused() {
        for (from, to, expected) in [
            ("0.125", "-1", "the price `on_demand.million_reads` must be 0 or more"),
            ("\"gb_month\": 0.25", "", "missing field `gb_month`"),
            ("gb_month", "gigabyte", "unknown field `gigabyte`"),
        ] {
            let error = Prices::parse(&PRICES.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
