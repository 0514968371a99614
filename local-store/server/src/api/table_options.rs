//! The parameters of a table that do not affect its items: `TableClass`, `SSESpecification`,
//! `OnDemandThroughput`, `WarmThroughput`, `Tags` and `ResourcePolicy`, in `CreateTable` and
//! `UpdateTable`.
//!
//! The error messages are those of DynamoDB. The crate `partition` defines the meaning of the options.

use partition::{Billing, ExpectedPolicy, OptionChange, Table, TableOptions, Units};

use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::policy_document;
use super::tags::{self, TagParameters};
use crate::store::Store;

/// The id of the key that AWS manages in an account: a placeholder in the form that clients expect.
const MANAGED_KEY: &str = "00000000-0000-4000-8000-000000000000";

/// A pair of read and write units, as it was sent.
type UnitParameters = (Option<i64>, Option<i64>);

/// `OnDemandThroughput` and `WarmThroughput` of a table or an index, as they were sent. An empty structure
/// counts as absent, except in an update of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThroughputOptions {
    on_demand: Option<UnitParameters>,
    warm: Option<UnitParameters>,
    has_empty_warm: bool,
}

/// The table or index that an option belongs to.
#[derive(Clone, Copy)]
pub(crate) enum Subject<'n> {
    /// The table itself.
    Table,
    /// The index with the given name.
    Index(&'n str),
}

impl Subject<'_> {
    fn of_on_demand(self) -> String {
        match self {
            Self::Table => "table".to_owned(),
            Self::Index(name) => format!("index : {name}"),
        }
    }

    fn of_warm(self) -> String {
        match self {
            Self::Table => "table".to_owned(),
            Self::Index(name) => format!("index {name}"),
        }
    }

    fn index(self) -> Option<String> {
        match self {
            Self::Table => None,
            Self::Index(name) => Some(name.to_owned()),
        }
    }
}

impl ThroughputOptions {
    pub(crate) fn read(parameters: Parameters<'_>) -> Result<Self, ApiError> {
        let units = |structure: &str, read: &str, write: &str| {
            let Some(units) = parameters.structure(structure)? else {
                return Ok(None);
            };
            Ok::<_, ApiError>(Some((units.long(read)?, units.long(write)?)))
        };
        let on_demand = units("OnDemandThroughput", "MaxReadRequestUnits", "MaxWriteRequestUnits")?;
        let warm = units("WarmThroughput", "ReadUnitsPerSecond", "WriteUnitsPerSecond")?;
        let says_something = |units: &UnitParameters| *units != (None, None);
        Ok(Self {
            on_demand: on_demand.filter(says_something),
            warm: warm.filter(says_something),
            has_empty_warm: warm == Some((None, None)),
        })
    }

    /// Returns whether the request removes the limit of reads, and whether it removes the limit of
    /// writes.
    pub(crate) fn ended_limits(self) -> (bool, bool) {
        let (read, write) = self.on_demand.unwrap_or_default();
        (read == Some(-1), write == Some(-1))
    }

    /// Returns whether `WarmThroughput` is present, but without any units.
    pub(crate) fn has_empty_warm(self) -> bool {
        self.has_empty_warm
    }

    pub(crate) fn has_on_demand(self) -> bool {
        self.on_demand.is_some()
    }

    pub(crate) fn has_warm(self) -> bool {
        self.warm.is_some()
    }

    /// Checks the options of a new table or index with the given billing mode. `provisioned` are
    /// the capacity units of the table or index.
    pub(crate) fn check_new(
        self,
        subject: Subject<'_>,
        billing: Billing,
        provisioned: (u64, u64),
    ) -> Result<Vec<OptionChange>, ApiError> {
        let mut changes = Vec::new();
        changes.extend(self.on_demand(subject, billing, false)?);
        if let Some((read, write)) = self.warm {
            for (asked, least, names) in [
                (read, provisioned.0, ("ReadUnitsPerSecond", "ReadCapacityUnits")),
                (write, provisioned.1, ("WriteUnitsPerSecond", "WriteCapacityUnits")),
            ] {
                let initial = TableOptions::default().warm_of_table(Billing::OnDemand);
                let initial =
                    if names.0 == "ReadUnitsPerSecond" { initial.read } else { initial.write };
                let (least, reason) = match billing {
                    Billing::OnDemand => (initial, "initial throughput for OnDemand. See: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html#on-demand-capacity-mode-initial".to_owned()),
                    Billing::Provisioned { .. } => (least, format!("{} of ProvisionedThroughput", names.1)),
                };
                check_warm(asked, least, names.0, subject, &reason)?;
            }
            changes.push(warm_change(subject, read, write));
        }
        Ok(changes)
    }

    /// Checks the changes of a table or index whose warm throughput is currently `current`.
    pub(crate) fn check_change(
        self,
        subject: Subject<'_>,
        billing: Billing,
        current: Units,
    ) -> Result<Vec<OptionChange>, ApiError> {
        let mut changes = Vec::new();
        changes.extend(self.on_demand(subject, billing, true)?);
        if let Some((read, write)) = self.warm {
            let reason = "current WarmThroughput, decreasing WarmThroughput is not supported";
            check_warm(read, current.read, "ReadUnitsPerSecond", subject, reason)?;
            check_warm(write, current.write, "WriteUnitsPerSecond", subject, reason)?;
            changes.push(warm_change(subject, read, write));
        }
        Ok(changes)
    }

    fn on_demand(
        self,
        subject: Subject<'_>,
        billing: Billing,
        is_update: bool,
    ) -> Result<Option<OptionChange>, ApiError> {
        let Some((read, write)) = self.on_demand else {
            return Ok(None);
        };
        let mut limits = [None, None];
        for (limit, (asked, name)) in
            limits.iter_mut().zip([(read, "MaxReadRequestUnits"), (write, "MaxWriteRequestUnits")])
        {
            let Some(asked) = asked else { continue };
            if billing != Billing::OnDemand {
                let (the, end, colon) = if is_update { ("the ", "", " :") } else { ("", ".", ":") };
                let of = subject.index().map(|index| format!(" for index{colon} {index}"));
                return Err(ApiError::invalid_parameter(format!(
                    "{name} for OnDemandThroughput{} cannot be specified when {the}table BillingMode is PROVISIONED{end}",
                    of.unwrap_or_default()
                )));
            }
            *limit = match asked {
                -1 if is_update => Some(None),
                1.. => Some(Some(asked.unsigned_abs())),
                _ => {
                    return Err(ApiError::invalid_parameter(format!(
                        "Requested {name} for OnDemandThroughput for {} is outside of valid range",
                        subject.of_on_demand()
                    )));
                }
            };
        }
        let [read, write] = limits;
        Ok(Some(OptionChange::OnDemandLimit { index: subject.index(), read, write }))
    }
}

fn check_warm(
    asked: Option<i64>,
    least: u64,
    name: &str,
    subject: Subject<'_>,
    reason: &str,
) -> Result<(), ApiError> {
    match asked {
        Some(asked) if u64::try_from(asked).map_or(true, |asked| asked < least) => {
            Err(ApiError::invalid_parameter(format!(
                "Requested {name} for WarmThroughput for {} is lower than {reason}",
                subject.of_warm()
            )))
        }
        _ => Ok(()),
    }
}

fn warm_change(subject: Subject<'_>, read: Option<i64>, write: Option<i64>) -> OptionChange {
    let units = |asked: Option<i64>| asked.map(i64::unsigned_abs);
    OptionChange::Warm { index: subject.index(), read: units(read), write: units(write) }
}

/// `SSESpecification`, as it was sent.
struct Encryption<'j> {
    is_enabled: Option<bool>,
    sse_type: Option<&'j str>,
    key: Option<&'j str>,
}

/// The options of a table, as they were sent.
pub(crate) struct OptionParameters<'j> {
    class: Option<&'j str>,
    encryption: Option<Encryption<'j>>,
    pub(crate) throughput: ThroughputOptions,
    tags: Option<TagParameters<'j>>,
    policy: Option<&'j str>,
}

impl<'j> OptionParameters<'j> {
    pub(crate) fn read(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        let encryption = match parameters.structure("SSESpecification")? {
            None => None,
            Some(encryption) => Some(Encryption {
                is_enabled: encryption.boolean("Enabled")?,
                sse_type: encryption.string("SSEType")?,
                key: encryption.string("KMSMasterKeyId")?,
            }),
        };
        Ok(Self {
            class: parameters.string("TableClass")?,
            encryption,
            throughput: ThroughputOptions::read(parameters)?,
            tags: tags::read_tags(parameters)?,
            policy: parameters.string("ResourcePolicy")?,
        })
    }

    pub(crate) fn constrain(&self, constraints: &mut Constraints) {
        if let Some(encryption) = &self.encryption {
            constraints.one_of("sSESpecification.sSEType", encryption.sse_type, &["AES256", "KMS"]);
            if let Some("") = encryption.key {
                constraints.length_at_least("sSESpecification.kMSMasterKeyId", &"", 0, 1);
            }
        }
    }

    pub(crate) fn has_class(&self) -> bool {
        self.class.is_some()
    }

    pub(crate) fn has_encryption(&self) -> bool {
        self.encryption.is_some()
    }

    /// Checks the options of a new table.
    pub(crate) fn check_new(
        &self,
        store: &Store,
        billing: Billing,
    ) -> Result<Vec<OptionChange>, ApiError> {
        let provisioned = match billing {
            Billing::OnDemand => (0, 0),
            Billing::Provisioned { read_units, write_units } => (read_units, write_units),
        };
        let mut changes = self.throughput.check_new(Subject::Table, billing, provisioned)?;
        changes.extend(self.check_class()?);
        if let Some(encryption) = &self.encryption {
            changes.extend(encryption.check(store)?.map(|key| OptionChange::Encrypt(Some(key))));
        }
        if let Some(tags) = &self.tags {
            changes.push(OptionChange::Tag(tags::check_tags(tags, None)?));
        }
        if let Some(policy) = self.policy {
            let text = policy_document::canonical(policy)?;
            let expected = ExpectedPolicy::Any;
            changes.push(OptionChange::PutPolicy { text, expected });
        }
        Ok(changes)
    }

    /// Checks the changes of a table. `billing` is the billing mode after the update.
    pub(crate) fn check_change(
        &self,
        store: &Store,
        table: &Table,
        billing: Billing,
    ) -> Result<Vec<OptionChange>, ApiError> {
        let current = table.options.warm_of_table(billing);
        let mut changes = self.throughput.check_change(Subject::Table, billing, current)?;
        // A table whose class was never set has the standard class, but its description omits the class.
        let is_said = table.options.infrequent_access.is_some();
        let class = self.check_class()?;
        changes.extend(class.filter(|class| is_said || *class != OptionChange::Class(false)));
        if let Some(encryption) = &self.encryption {
            let key = encryption.check(store)?;
            encryption.check_change(key.as_deref(), table.options.encryption_key.as_deref())?;
            changes.push(OptionChange::Encrypt(key));
        }
        Ok(changes)
    }

    fn check_class(&self) -> Result<Option<OptionChange>, ApiError> {
        match self.class {
            None => Ok(None),
            Some("STANDARD") => Ok(Some(OptionChange::Class(false))),
            Some("STANDARD_INFREQUENT_ACCESS") => Ok(Some(OptionChange::Class(true))),
            Some(_) => Err(ApiError::validation(
                "Invalid table-class parameter provided. Please try again with a valid table-class value: [STANDARD, STANDARD_INFREQUENT_ACCESS].",
            )),
        }
    }
}

impl Encryption<'_> {
    /// Returns the ARN of the requested key; `None` for a key that AWS owns.
    fn check(&self, store: &Store) -> Result<Option<String>, ApiError> {
        // `SSEType` without `Enabled` counts as enabled.
        let is_enabled = self.is_enabled.unwrap_or(self.sse_type.is_some());
        let problem = match (is_enabled, self.sse_type, self.key) {
            (false, None, None) => return Ok(None),
            (false, Some(_), _) => "SSEType can not be specified if Enabled is false",
            (false, None, Some(_)) => "KMSMasterKeyId can not be specified if Enabled is false",
            (true, Some("AES256"), _) => "SSEType AES256 is not supported",
            (true, None, Some(_)) => "SSEType KMS is required if KMSMasterKeyId is specified",
            (true, _, key) => return Ok(Some(key_arn(store, key))),
        };
        Err(ApiError::invalid_parameter(problem))
    }

    /// Refuses a change to the key that is already in use. A key that is given by id or alias
    /// always counts as a change, as in DynamoDB.
    fn check_change(&self, key: Option<&str>, before: Option<&str>) -> Result<(), ApiError> {
        match (key, before) {
            (None, None) => {
                Err(ApiError::invalid_parameter("Table is already encrypted by default"))
            }
            (Some(_), Some(before)) if self.key == Some(before) => {
                Err(ApiError::invalid_parameter(
                    "Table is already encrypted with given KMSMasterKeyId. Use KMSMasterKeyId parameter if you want to change Master Key",
                ))
            }
            _ => Ok(()),
        }
    }
}

fn key_arn(store: &Store, key: Option<&str>) -> String {
    let (region, account) = (store.region(), store.account());
    match key.filter(|key| *key != "alias/aws/dynamodb") {
        Some(arn) if arn.starts_with("arn:") => arn.to_owned(),
        Some(alias) if alias.starts_with("alias/") => {
            format!("arn:aws:kms:{region}:{account}:{alias}")
        }
        Some(id) => format!("arn:aws:kms:{region}:{account}:key/{id}"),
        None => format!("arn:aws:kms:{region}:{account}:key/{MANAGED_KEY}"),
    }
}
