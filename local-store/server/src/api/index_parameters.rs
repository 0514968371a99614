//! `LocalSecondaryIndexes`, `GlobalSecondaryIndexes` and `GlobalSecondaryIndexUpdates`: parses them
//! and creates index definitions. The order of checks is DynamoDB's.
//!
//! The error messages are DynamoDB's for `CreateTable` and `UpdateTable`. `index_updates` checks the
//! parameters against the existing indexes of a table.

use std::collections::BTreeSet;

use model::KeySchema;
use model::limits::{
    GLOBAL_INDEXES_MAX, KEY_ATTRIBUTE_NAME_BYTES_MAX, LOCAL_INDEXES_MAX, NON_KEY_ATTRIBUTES_MAX,
    PROJECTED_ATTRIBUTES_MAX,
};
use partition::{Billing, IndexDefinition, IndexKind, IndexProjection, OptionChange};

use super::constraints::Constraints;
use super::error::ApiError;
use super::key_elements::{self, Element};
use super::parameters::Parameters;
use super::table_options::{Subject, ThroughputOptions};
use super::table_settings::check_units;

/// The maximum number of indexes in a list that are checked. This maximum bounds the work, because
/// each index is compared with all earlier indexes. The maximum is larger than the limit of a
/// table, so that an error in an index is reported before the error about the number of indexes.
const INDEXES_CHECKED_MAX: usize = 100;

/// One index, as it was sent.
#[derive(Debug)]
pub(crate) struct IndexParameters<'j> {
    kind: IndexKind,
    name: Option<&'j str>,
    key_schema: Option<Vec<Element<'j>>>,
    projection: Option<ProjectionParameters<'j>>,
    throughput: Option<ThroughputParameters>,
    options: ThroughputOptions,
}

#[derive(Debug)]
struct ProjectionParameters<'j> {
    projection_type: Option<&'j str>,
    non_key_attributes: Option<Vec<&'j str>>,
}

/// `ProvisionedThroughput`, as it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThroughputParameters {
    read_units: Option<i64>,
    write_units: Option<i64>,
}

impl ThroughputParameters {
    pub(crate) fn read(parameters: Parameters<'_>) -> Result<Option<Self>, ApiError> {
        let Some(throughput) = parameters.structure("ProvisionedThroughput")? else {
            return Ok(None);
        };
        Ok(Some(Self {
            read_units: throughput.long("ReadCapacityUnits")?,
            write_units: throughput.long("WriteCapacityUnits")?,
        }))
    }

    pub(crate) fn constrain(self, constraints: &mut Constraints, at: &str) {
        let members =
            [("writeCapacityUnits", self.write_units), ("readCapacityUnits", self.read_units)];
        for (member, units) in members {
            let at = format!("{at}.provisionedThroughput.{member}");
            constraints.required(&at, units.is_some());
            constraints.range(&at, units, 1, i64::MAX);
        }
    }

    /// Returns the read and write capacity units of an index. The caller must have checked the
    /// constraints.
    pub(crate) fn check(self, index: &str) -> Result<(u64, u64), ApiError> {
        check_units((self.read_units.unwrap_or(1), self.write_units.unwrap_or(1)), Some(index))
    }
}

impl<'j> IndexParameters<'j> {
    pub(crate) fn read(parameters: Parameters<'j>, kind: IndexKind) -> Result<Self, ApiError> {
        let projection = match parameters.structure("Projection")? {
            None => None,
            Some(projection) => Some(ProjectionParameters {
                projection_type: projection.string("ProjectionType")?,
                non_key_attributes: projection.texts("NonKeyAttributes")?,
            }),
        };
        Ok(Self {
            kind,
            name: parameters.string("IndexName")?,
            key_schema: key_elements::read_elements(parameters, "KeySchema", "KeyType")?,
            projection,
            throughput: ThroughputParameters::read(parameters)?,
            options: ThroughputOptions::read(parameters)?,
        })
    }

    /// Checks the options of a new index after [`IndexParameters::check`].
    pub(crate) fn check_options(
        &self,
        index: &IndexDefinition,
        billing: Billing,
    ) -> Result<Vec<OptionChange>, ApiError> {
        let units = index.throughput.unwrap_or_default();
        self.options.check_new(Subject::Index(&index.name), billing, units)
    }

    pub(crate) fn name(&self) -> Option<&'j str> {
        self.name
    }

    /// Returns whether the index lacks the throughput that an index of a provisioned table requires.
    pub(crate) fn lacks_throughput(&self, billing: Billing) -> bool {
        billing != Billing::OnDemand && self.throughput.is_none()
    }

    /// Adds the failures of an index. `at` is the path of the index in the request.
    pub(crate) fn constrain(&self, constraints: &mut Constraints, at: &str) {
        match self.name {
            Some(name) => constraints.own_name(&format!("{at}.indexName"), name),
            None => constraints.required(format_args!("{at}.indexName"), false),
        }
        let of_key = format!("{at}.keySchema");
        let elements = self.key_schema.as_deref();
        key_elements::constrain_key_elements(constraints, &of_key, elements);
        let is_global = self.kind == IndexKind::Global;
        key_elements::constrain_key_schema(constraints, &of_key, elements, is_global);
        let of_projection = format!("{at}.projection");
        constraints.required(&of_projection, self.projection.is_some());
        if let Some(projection) = &self.projection {
            let types = ["ALL", "INCLUDE", "KEYS_ONLY"];
            let of_type = format!("{of_projection}.projectionType");
            constraints.one_of(&of_type, projection.projection_type, &types);
            if let Some(names) = &projection.non_key_attributes {
                let shown = format!("[{}]", names.join(", "));
                let at = format!("{of_projection}.nonKeyAttributes");
                constraints.length_at_least(&at, &shown, names.len(), 1);
                constraints.length_at_most(&at, &shown, names.len(), NON_KEY_ATTRIBUTES_MAX);
                let has_length =
                    |name: &&str| (1..=KEY_ATTRIBUTE_NAME_BYTES_MAX).contains(&name.len());
                if !names.iter().all(has_length) {
                    let lengths = format!(
                        "Member must satisfy constraint: [Member must have length less than or equal to {KEY_ATTRIBUTE_NAME_BYTES_MAX}, Member must have length greater than or equal to 1]"
                    );
                    constraints.other(&at, &shown, &lengths);
                }
            }
        }
        if let Some(throughput) = self.throughput {
            throughput.constrain(constraints, at);
        }
    }

    /// Checks the index for a table with this key and billing mode.
    pub(crate) fn check(
        &self,
        definitions: &[Element<'_>],
        table: &KeySchema,
        billing: Billing,
    ) -> Result<IndexDefinition, ApiError> {
        let name = self.name.unwrap_or_default();
        let elements = self.key_schema.as_deref().unwrap_or_default();
        let key_schema = match self.kind {
            IndexKind::Global => key_elements::global_key_schema(definitions, elements)?,
            IndexKind::Local => {
                let key_schema = key_elements::key_schema(definitions, elements)?;
                check_local(name, &key_schema, table)?;
                key_schema.into()
            }
        };
        Ok(IndexDefinition {
            name: name.to_owned(),
            kind: self.kind,
            key_schema,
            projection: self.check_projection()?,
            throughput: self.check_throughput(name, billing)?,
        })
    }

    /// Checks the projection of the index and returns it. This check does not depend on the table.
    pub(crate) fn check_projection(&self) -> Result<IndexProjection, ApiError> {
        let invalid = |text: String| Err(ApiError::invalid_parameter(text));
        let Some(projection) = &self.projection else {
            return invalid("Unknown ProjectionType: null".to_owned());
        };
        match (projection.projection_type, &projection.non_key_attributes) {
            (Some("INCLUDE"), Some(names)) => {
                let mut seen = BTreeSet::new();
                if let Some(twice) = names.iter().find(|name| !seen.insert(**name)) {
                    return invalid(format!("Duplicate element in NonKeyAttributes: {twice}"));
                }
                let names = names.iter().map(|name| (*name).to_owned()).collect();
                Ok(IndexProjection::Include(names))
            }
            (Some("INCLUDE"), None) => invalid(
                "ProjectionType is INCLUDE, but NonKeyAttributes is not specified".to_owned(),
            ),
            (Some(other), Some(_)) => {
                invalid(format!("ProjectionType is {other}, but NonKeyAttributes is specified"))
            }
            (Some("ALL"), None) => Ok(IndexProjection::All),
            (Some(_), None) => Ok(IndexProjection::KeysOnly),
            (None, _) => invalid("Unknown ProjectionType: null".to_owned()),
        }
    }

    fn check_throughput(
        &self,
        name: &str,
        billing: Billing,
    ) -> Result<Option<(u64, u64)>, ApiError> {
        match (self.kind, billing, self.throughput) {
            (IndexKind::Local, _, _) | (_, Billing::OnDemand, None) => Ok(None),
            (_, Billing::OnDemand, Some(_)) => Err(throughput_not_allowed(name)),
            (_, Billing::Provisioned { .. }, Some(throughput)) => throughput.check(name).map(Some),
            (_, Billing::Provisioned { .. }, None) => Err(ApiError::invalid_parameter(format!(
                "ProvisionedThroughput is not specified for index: {name}"
            ))),
        }
    }
}

/// Returns the error for an index with throughput in an on-demand table.
fn throughput_not_allowed(index: &str) -> ApiError {
    ApiError::invalid_parameter(format!(
        "ProvisionedThroughput should not be specified for index: {index} when BillingMode is PAY_PER_REQUEST"
    ))
}

/// Returns the error for an index without throughput in a provisioned table.
pub(crate) fn throughput_missing(index: &str) -> ApiError {
    ApiError::invalid_parameter(format!(
        "ProvisionedThroughput must be specified for index: {index}"
    ))
}

fn check_local(name: &str, index: &KeySchema, table: &KeySchema) -> Result<(), ApiError> {
    let reason = if table.sort.is_none() {
        "Table KeySchema does not have a range key, which is required when specifying a LocalSecondaryIndex".to_owned()
    } else if index.partition != table.partition {
        format!(
            "Index KeySchema does not have the same leading hash key as table KeySchema for index: {name}. index hash key: {}, table hash key: {}",
            index.partition.name, table.partition.name
        )
    } else if index.sort.is_none() {
        format!("Index KeySchema does not have a range key for index: {name}")
    } else {
        return Ok(());
    };
    Err(ApiError::invalid_parameter(reason))
}

/// The indexes of a new table, as they were sent.
pub(crate) struct IndexLists<'j> {
    local: Option<Vec<IndexParameters<'j>>>,
    global: Option<Vec<IndexParameters<'j>>>,
}

impl<'j> IndexLists<'j> {
    pub(crate) fn read(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        let read = |list: &str, class: &str, kind: IndexKind| {
            let Some(indexes) = parameters.structures(list, class)? else {
                return Ok(None);
            };
            let indexes = indexes.into_iter().map(|index| IndexParameters::read(index, kind));
            indexes.collect::<Result<Vec<_>, ApiError>>().map(Some)
        };
        Ok(Self {
            local: read("LocalSecondaryIndexes", "LocalSecondaryIndex", IndexKind::Local)?,
            global: read("GlobalSecondaryIndexes", "GlobalSecondaryIndex", IndexKind::Global)?,
        })
    }

    pub(crate) fn constrain(&self, constraints: &mut Constraints) {
        let lists =
            [("globalSecondaryIndexes", &self.global), ("localSecondaryIndexes", &self.local)];
        for (list, indexes) in lists {
            for (number, index) in (1..).zip(indexes.iter().flatten()) {
                index.constrain(constraints, &format!("{list}.{number}.member"));
            }
        }
    }

    /// Checks the indexes and returns them, local indexes first. Appends their other settings to
    /// `options`.
    pub(crate) fn check(
        &self,
        definitions: &[Element<'_>],
        table: &KeySchema,
        billing: Billing,
        options: &mut Vec<OptionChange>,
    ) -> Result<Vec<IndexDefinition>, ApiError> {
        let mut indexes: Vec<IndexDefinition> = Vec::new();
        let lists = [
            (IndexKind::Local, &self.local, "List of LocalSecondaryIndexes is empty"),
            (IndexKind::Global, &self.global, "List of GlobalSecondaryIndexes is empty"),
        ];
        for (kind, list, is_empty) in lists {
            if list.as_ref().is_some_and(Vec::is_empty) {
                return Err(ApiError::invalid_parameter(is_empty));
            }
            let length = list.as_ref().map_or(0, Vec::len);
            if length > INDEXES_CHECKED_MAX {
                check_count(kind, length)?;
            }
            for parameters in list.iter().flatten() {
                let index = parameters.check(definitions, table, billing)?;
                options.extend(parameters.check_options(&index, billing)?);
                if indexes.iter().any(|earlier| earlier.name == index.name) {
                    return Err(ApiError::invalid_parameter(format!(
                        "Duplicate index name: {}",
                        index.name
                    )));
                }
                indexes.push(index);
            }
        }
        check_counts(&indexes.iter().collect::<Vec<_>>())?;
        Ok(indexes)
    }
}

/// Checks the number of indexes of a kind.
fn check_count(kind: IndexKind, count: usize) -> Result<(), ApiError> {
    match kind {
        IndexKind::Local if count > LOCAL_INDEXES_MAX => Err(ApiError::invalid_parameter(format!(
            "Number of LocalSecondaryIndexes exceeds per-table limit of {LOCAL_INDEXES_MAX}"
        ))),
        IndexKind::Global if count > GLOBAL_INDEXES_MAX => {
            Err(ApiError::invalid_parameter(format!(
                "GlobalSecondaryIndex count exceeds the per-table limit of {GLOBAL_INDEXES_MAX}"
            )))
        }
        IndexKind::Local | IndexKind::Global => Ok(()),
    }
}

/// Checks the number of indexes of a table, and the total number of attributes that they project.
pub(crate) fn check_counts(indexes: &[&IndexDefinition]) -> Result<(), ApiError> {
    for kind in [IndexKind::Local, IndexKind::Global] {
        check_count(kind, indexes.iter().filter(|index| index.kind == kind).count())?;
    }
    let projected = |index: &&IndexDefinition| match &index.projection {
        IndexProjection::Include(names) => names.len(),
        IndexProjection::KeysOnly | IndexProjection::All => 0,
    };
    if indexes.iter().map(projected).sum::<usize>() > PROJECTED_ATTRIBUTES_MAX {
        return Err(ApiError::invalid_parameter(format!(
            "Number of NonKeyAttributes over all indexes exceeds the per-table limit of {PROJECTED_ATTRIBUTES_MAX}"
        )));
    }
    Ok(())
}

/// Checks that every attribute definition is used in the key of the table or of an index. `indexes`
/// are all indexes that the table will have.
pub(crate) fn check_definitions_used<'i>(
    definitions: &[Element<'_>],
    table: &KeySchema,
    indexes: impl Iterator<Item = &'i IndexDefinition>,
) -> Result<(), ApiError> {
    let of_indexes = indexes.flat_map(|index| index.key_schema.attributes());
    let mut used: Vec<&str> = Vec::new();
    for attribute in table.attributes().chain(of_indexes) {
        if !used.contains(&attribute.name.as_str()) {
            used.push(&attribute.name);
        }
    }
    let is_used = |element: &Element<'_>| element.name.is_some_and(|name| used.contains(&name));
    if definitions.iter().all(is_used) {
        return Ok(());
    }
    Err(ApiError::invalid_parameter(format!(
        "Some AttributeDefinitions are not used. AttributeDefinitions: [{}], keys used: [{}]",
        key_elements::names(definitions),
        used.join(", ")
    )))
}
