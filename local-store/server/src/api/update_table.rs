//! `UpdateTable`: changes the billing mode, throughput, stream, deletion protection, options and global
//! indexes of a table.
//!
//! The change is complete when the response is sent. Only a new index is built in the background, by the
//! periodic work of the module `ticks`. As in DynamoDB, only few changes can be combined in one request.

use jiff::Timestamp;
use model::EpochMillis;
use partition::{Billing, Command, Reply, Table, UpdateTable};

use super::constraints::Constraints;
use super::error::ApiError;
use super::index_updates::{IndexChanges, IndexUpdates, will_not_change};
use super::parameters::Parameters;
use super::table_description::{Sizes, Status, UPDATING, WarmThroughput, description_member};
use super::table_options::OptionParameters;
use super::table_settings::{TableSettings, check_supported, stream_label, throughput_not_allowed};
use super::tables;
use crate::store::Store;

/// The number of throughput decreases on one UTC day that are allowed without waiting.
const FREE_DECREASES: u32 = 4;
/// The minimum interval in milliseconds between further decreases on the same day.
const DECREASE_WAIT_MS: u64 = 60 * 60 * 1000;

/// The contents of a request, as they were sent.
struct Request<'j> {
    settings: TableSettings<'j>,
    options: OptionParameters<'j>,
    indexes: IndexUpdates<'j>,
}

pub(super) async fn update_table(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let name = parameters.string("TableName")?;
    let request = Request {
        settings: TableSettings::read(parameters)?,
        options: OptionParameters::read(parameters)?,
        indexes: IndexUpdates::read(parameters)?,
    };
    let name = tables::required(name)?;
    let mut constraints = Constraints::new();
    constraints.name_of_settings(name);
    request.settings.constrain(&mut constraints);
    request.indexes.constrain(&mut constraints);
    request.options.constrain(&mut constraints);
    constraints.finish()?;

    check_supported(parameters)?;
    request.check_shape()?;
    let table = tables::find_for_settings(store, name)?;
    let update = request.check(store, &table)?;
    let replies = store.submit(vec![Command::UpdateTable(Box::new(update))]).await?;
    match replies.into_iter().next() {
        Some(Reply::Table(changed)) => {
            let sizes = Sizes::read(store, &changed).await?;
            let mut out = String::from("{");
            let changes_encryption = request.options.has_encryption();
            let table_warm = request.options.throughput.has_warm();
            let status = Status {
                text: UPDATING,
                warm: WarmThroughput::Requested { table: table_warm },
                encrypted_before: changes_encryption
                    .then_some(table.options.encryption_key.as_deref()),
                ended_limits: request.options.throughput.ended_limits(),
            };
            description_member(&mut out, "TableDescription", store, &changed, &sizes, status);
            out.push('}');
            Ok(out)
        }
        Some(Reply::TableNotFound) => Err(ApiError::table_not_found(&table.name)),
        Some(Reply::Invalid(text)) => Err(ApiError::validation(text)),
        _ => Err(ApiError::defect("UpdateTable returned an unexpected reply")),
    }
}

impl Request<'_> {
    /// Checks that the request has at least one change, and only changes that may be combined.
    /// These checks do not depend on the table.
    fn check_shape(&self) -> Result<(), ApiError> {
        let settings = &self.settings;
        let (has_billing, has_throughput) =
            (settings.billing_mode.is_some(), settings.has_throughput());
        let (has_stream, has_protection) =
            (settings.has_stream(), settings.deletion_protection.is_some());
        let (has_encryption, has_class) = (self.options.has_encryption(), self.options.has_class());
        let on_demand = self.options.throughput.has_on_demand();
        let (warm, has_indexes) = (self.options.throughput.has_warm(), self.indexes.is_given());
        let concerns = [
            has_billing,
            has_throughput,
            has_stream,
            has_protection,
            has_encryption,
            has_class,
            on_demand,
            warm,
            has_indexes,
        ];
        let count = concerns.iter().filter(|is_given| **is_given).count();
        if count == 0 {
            return Err(ApiError::validation(
                "At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled, GlobalSecondaryIndexUpdates, SSESpecification, ReplicaUpdates, MultiAccountReplicaReady, ReplicaTransitRoleArn, MultiRegionConsistency, DeletionProtectionEnabled, OnDemandThroughput, WarmThroughput or TableClass is required",
            ));
        }
        // DynamoDB reports throughput that is out of bounds, and empty parameters, before other errors.
        self.settings.provisioned()?;
        self.indexes.check_warm()?;
        self.indexes.check_shape()?;
        let is_alone = count == 1;
        let moves_indexes = self.indexes.creates_or_deletes();
        let problem = match () {
            () if has_encryption && !is_alone => {
                "Server-Side Encryption modification must be the only operation in the request"
            }
            () if has_class && !is_alone => {
                "TableClass modification must be the only operation in the request"
            }
            () if has_protection && !is_alone => {
                "DeletionProtection modification must be the only operation in the request"
            }
            () if on_demand && (has_stream || has_indexes || warm) => {
                "OnDemandThroughput can only be combined with BillingMode in an UpdateTable request"
            }
            () if warm && self.indexes.creates() => {
                "Create global secondary index cannot be specified when updating WarmThroughput"
            }
            () if warm && !is_alone => "WarmThroughput must be the only operation in the request",
            () if settings.billing_mode == Some("PAY_PER_REQUEST") && has_throughput => {
                "ProvisionedThroughput cannot be specified when BillingMode is PAY_PER_REQUEST"
            }
            () if settings.billing_mode == Some("PROVISIONED") && !has_throughput => {
                "ProvisionedThroughput must be specified when BillingMode is PROVISIONED"
            }
            () if has_throughput && has_stream => {
                "You cannot modify stream status while updating table IOPS"
            }
            () if has_throughput && moves_indexes => {
                "You cannot create or delete index while updating table IOPS"
            }
            () if has_stream && moves_indexes => {
                "You cannot create or delete index while changing stream status"
            }
            () => return Ok(()),
        };
        Err(ApiError::invalid_parameter(problem))
    }

    fn check(&self, store: &Store, table: &Table) -> Result<UpdateTable, ApiError> {
        let provisioned = self.settings.provisioned()?;
        let stream = self.settings.stream(false)?;
        let billing = billing(table, self.settings.billing_mode, provisioned)?;
        if let Some(after) = billing {
            check_decrease(table, after, store.now())?;
        }
        let after = billing.unwrap_or(table.billing);
        let mut options = self.options.check_change(store, table, after)?;
        let IndexChanges { changes, options: of_indexes } = self.indexes.check(table, after)?;
        options.extend(of_indexes);
        let stream = match stream {
            None => None,
            Some(None) => Some(None),
            Some(Some(view_type)) => Some(Some((view_type, stream_label(store.now())?))),
        };
        Ok(UpdateTable {
            table: table.id,
            billing,
            deletion_protection: self.settings.deletion_protection,
            stream,
            indexes: changes,
            options,
        })
    }
}

/// Returns the new billing mode of the table; `None` if it does not change.
fn billing(
    table: &Table,
    mode: Option<&str>,
    provisioned: Option<Billing>,
) -> Result<Option<Billing>, ApiError> {
    match (mode, provisioned, table.billing) {
        (Some("PAY_PER_REQUEST"), _, _) => Ok(Some(Billing::OnDemand)),
        (_, None, _) => Ok(None),
        (None, Some(_), Billing::OnDemand) => Err(throughput_not_allowed()),
        (_, Some(Billing::Provisioned { read_units, write_units }), current)
            if current == (Billing::Provisioned { read_units, write_units }) =>
        {
            Err(will_not_change("table", "the table", (read_units, write_units)))
        }
        (_, Some(provisioned), _) => Ok(Some(provisioned)),
    }
}

/// Checks that throughput is decreased at most four times a UTC day, and after that at most once an hour.
fn check_decrease(table: &Table, after: Billing, now: EpochMillis) -> Result<(), ApiError> {
    let (
        Billing::Provisioned { read_units: old_read, write_units: old_write },
        Billing::Provisioned { read_units, write_units },
        Some(last),
    ) = (table.billing, after, table.options.decreased_at)
    else {
        return Ok(());
    };
    let today = table.options.decreases_today(now);
    let next = EpochMillis(last.0.saturating_add(DECREASE_WAIT_MS));
    let shrinks = read_units < old_read || write_units < old_write;
    if !shrinks || today < FREE_DECREASES || now >= next {
        return Ok(());
    }
    Err(ApiError::limit_exceeded(&format!(
        "Subscriber limit exceeded: Provisioned throughput decreases are limited within a given UTC day. After the first {FREE_DECREASES} decreases, each subsequent decrease in the same UTC day can be performed at most once every 3600 seconds. Number of decreases today: {today}. Last decrease at {}. Next decrease can be made at {}",
        time_text(last),
        time_text(next)
    )))
}

/// Returns a time in the form of DynamoDB's error messages.
fn time_text(time: EpochMillis) -> String {
    let time = i64::try_from(time.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(String::new, |time| {
        time.strftime("%A, %B %-d, %Y at %-I:%M:%S %p Coordinated Universal Time").to_string()
    })
}
