//! The settings that `CreateTable` and `UpdateTable` share: billing mode, throughput, stream and deletion
//! protection. The module also refuses the parameters that this store does not support.
//!
//! Each operation applies the settings to its table.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use model::{EpochMillis, StreamViewType};
use partition::Billing;

use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;

/// The maximum throughput in a request, inclusive. Larger values cause an arithmetic overflow in
/// DynamoDB.
const THROUGHPUT_MAX: i64 = 1_000_000_000_000;

/// The parameters that this store does not support. A request with one of them is an error.
const UNSUPPORTED: [(&str, &str); 10] = [
    ("ReplicaUpdates", "leave it out"),
    ("MultiRegionConsistency", "leave it out"),
    ("GlobalTableWitnessUpdates", "leave it out"),
    ("GlobalTableSettingsReplicationMode", "leave it out"),
    ("GlobalTableSourceArn", "leave it out"),
    ("MultiAccountReplicaReady", "leave it out"),
    ("ReplicaTransitRoleArn", "leave it out"),
    ("DisassociationProtectionEnabled", "leave it out"),
    ("VectorIndexes", "leave it out"),
    ("VectorIndexUpdates", "leave it out"),
];

/// The shared parameters, as they were sent.
pub(crate) struct TableSettings<'j> {
    /// `BillingMode`, or the value that corresponds to `TableThroughputMode`.
    pub(crate) billing_mode: Option<&'j str>,
    sent_modes: [(&'static str, Option<&'j str>); 2],
    pub(crate) deletion_protection: Option<bool>,
    throughput: Option<Throughput>,
    stream: Option<StreamSpecification<'j>>,
}

#[derive(Clone, Copy)]
struct Throughput {
    read_units: Option<i64>,
    write_units: Option<i64>,
}

struct StreamSpecification<'j> {
    is_enabled: Option<bool>,
    view_type: Option<&'j str>,
}

impl<'j> TableSettings<'j> {
    pub(crate) fn read(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        let throughput = match parameters.structure("ProvisionedThroughput")? {
            None => None,
            Some(throughput) => Some(Throughput {
                read_units: throughput.long("ReadCapacityUnits")?,
                write_units: throughput.long("WriteCapacityUnits")?,
            }),
        };
        let stream = match parameters.structure("StreamSpecification")? {
            None => None,
            Some(stream) => Some(StreamSpecification {
                is_enabled: stream.boolean("StreamEnabled")?,
                view_type: stream.string("StreamViewType")?,
            }),
        };
        let billing_mode = parameters.string("BillingMode")?;
        let throughput_mode = parameters.string("TableThroughputMode")?;
        Ok(Self {
            billing_mode: billing_mode.or(throughput_mode),
            sent_modes: [("billingMode", billing_mode), ("tableThroughputMode", throughput_mode)],
            deletion_protection: parameters.boolean("DeletionProtectionEnabled")?,
            throughput,
            stream,
        })
    }

    /// Adds the failures of the shared parameters.
    pub(crate) fn constrain(&self, constraints: &mut Constraints) {
        for (at, mode) in self.sent_modes {
            constraints.one_of(at, mode, &["PROVISIONED", "PAY_PER_REQUEST"]);
        }
        if let Some(throughput) = self.throughput {
            let at = "provisionedThroughput.writeCapacityUnits";
            constraints.required(at, throughput.write_units.is_some());
            constraints.range(at, throughput.write_units, 1, i64::MAX);
            let at = "provisionedThroughput.readCapacityUnits";
            constraints.required(at, throughput.read_units.is_some());
            constraints.range(at, throughput.read_units, 1, i64::MAX);
        }
        if let Some(stream) = &self.stream {
            constraints.required("streamSpecification.streamEnabled", stream.is_enabled.is_some());
            let view_types = StreamViewType::ALL.map(StreamViewType::as_str);
            constraints.one_of("streamSpecification.streamViewType", stream.view_type, &view_types);
        }
    }

    pub(crate) fn has_throughput(&self) -> bool {
        self.throughput.is_some()
    }

    pub(crate) fn has_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns the provisioned throughput, if present. Each value is at least 1 and at most the maximum.
    pub(crate) fn provisioned(&self) -> Result<Option<Billing>, ApiError> {
        let Some(Throughput { read_units: Some(read), write_units: Some(write) }) = self.throughput
        else {
            return Ok(None);
        };
        let (read_units, write_units) = check_units((read, write), None)?;
        Ok(Some(Billing::Provisioned { read_units, write_units }))
    }

    /// Returns the stream setting: `Some(Some(view type))` to enable the stream, `Some(None)` to disable
    /// it, `None` to change nothing. DynamoDB has different error messages for a new and an existing table.
    pub(crate) fn stream(&self, is_new: bool) -> Result<Option<Option<StreamViewType>>, ApiError> {
        let Some(stream) = &self.stream else {
            return Ok(None);
        };
        match (stream.is_enabled, stream.view_type.and_then(StreamViewType::from_text)) {
            (Some(true), Some(view_type)) => Ok(Some(Some(view_type))),
            (Some(true), None) => Err(ApiError::invalid_parameter(if is_new {
                "Table is being created with a stream enabled, UpdateViewType is required"
            } else {
                "If stream is being enabled then UpdateViewType is required"
            })),
            (_, Some(_)) => Err(ApiError::invalid_parameter(if is_new {
                "Table is being created with a stream disabled, UpdateViewType should not be specified"
            } else {
                "If stream is being disabled, then UpdateViewType must not be specified"
            })),
            (_, None) => Ok(Some(None)),
        }
    }
}

/// Checks that the read and write capacity units of a table or an index do not exceed the maximum.
/// The constraints have checked the minimum of 1.
pub(crate) fn check_units(
    (read, write): (i64, i64),
    index: Option<&str>,
) -> Result<(u64, u64), ApiError> {
    for (units, name) in [(read, "ReadCapacityUnits"), (write, "WriteCapacityUnits")] {
        if units > THROUGHPUT_MAX {
            let of_index = index.map(|index| format!(" for index {index}")).unwrap_or_default();
            return Err(ApiError::validation(format!(
                "Given value {units} for {name} is out of bounds{of_index}"
            )));
        }
    }
    Ok((read.unsigned_abs(), write.unsigned_abs()))
}

/// Refuses the parameters that this store does not support.
pub(crate) fn check_supported(parameters: Parameters<'_>) -> Result<(), ApiError> {
    match UNSUPPORTED.iter().find(|(name, _)| parameters.has(name)) {
        None => Ok(()),
        Some((name, instead)) => {
            Err(ApiError::unsupported(&format!("The parameter {name}"), instead))
        }
    }
}

/// Returns the error for a table with throughput in on-demand mode.
pub(crate) fn throughput_not_allowed() -> ApiError {
    ApiError::invalid_parameter(
        "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST",
    )
}

/// Returns the error for a new table without throughput in provisioned mode.
pub(crate) fn throughput_missing() -> ApiError {
    ApiError::invalid_parameter(
        "ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is PROVISIONED",
    )
}

/// The latest label that this process assigned, in milliseconds.
static LATEST_LABEL_MS: AtomicU64 = AtomicU64::new(0);

/// Returns a label for a new stream: the current time, such as `2026-11-21T02:30:00.000`. Labels are
/// unique in a process, even if the store's clock is frozen, because consumers store their checkpoints
/// under the label. If another process has assigned a later label, the partition machine appends a
/// digit.
pub(crate) fn stream_label(now: EpochMillis) -> Result<String, ApiError> {
    label_text(next_label_ms(&LATEST_LABEL_MS, now))
        .ok_or_else(|| ApiError::defect("the store's clock is beyond the year 9999"))
}

/// Returns the time of the next label in milliseconds: `now`, but later than the latest label.
fn next_label_ms(latest: &AtomicU64, now: EpochMillis) -> u64 {
    let next = |latest: u64| now.0.max(latest.saturating_add(1));
    let before = latest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |ms| Some(next(ms)));
    next(before.unwrap_or_else(|ms| ms))
}

fn label_text(ms: u64) -> Option<String> {
    let time = Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%S%.3f").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_grow_while_the_clock_stands_still() {
        let (latest, now) = (AtomicU64::new(0), EpochMillis(1_795_000_000_000));
        let labels: Vec<String> =
            (0..3).filter_map(|_| label_text(next_label_ms(&latest, now))).collect();
        assert_eq!(
            labels,
            ["2026-11-18T11:06:40.000", "2026-11-18T11:06:40.001", "2026-11-18T11:06:40.002"]
        );
        assert_eq!(next_label_ms(&latest, now.plus(5000)), now.0 + 5000);
        assert_eq!(label_text(u64::MAX), None);
    }
}
