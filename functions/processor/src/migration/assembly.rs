//! Assembles documents from their parts: reads the document, then all parts, and writes the result
//! if the document is unchanged.
//!
//! Two concurrent assemblies of one document cannot mix their results. Each write increments the
//! revision in the document's mark, even if nothing else changes or the document no longer exists.
//! So if another worker has written after this worker read the document, this worker's write fails.
//! The last worker whose write succeeds has therefore read every change. The rule defines what a
//! document is.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use control::ProblemKind;
use model::json::item_to_string;
use model::{Item, PrimaryKey};
use rules::migration::{Document, Keys, MARK, Migration, Registers, Target};

use super::PLAN_TABLE;
use super::targets::{TargetPut, Targets};
use super::window::Window;
use crate::failure::Failure;
use crate::tables::attribute_value::{from_sdk_item, to_sdk};
use crate::tables::dynamodb::request_failure;

/// Upper bound of the pages of one partition. 1,000 pages of 1 MB are more than any document has.
const PAGES_MAX: usize = 1_000;

impl Targets {
    /// Assembles a document from its parts. `keys` are the keys under which the document has
    /// existed so far. Returns whether a write was necessary.
    pub(super) async fn assemble(
        &self,
        document: &Document,
        keys: &Keys,
        window: &Window<'_>,
    ) -> Result<bool, Failure> {
        let migration = self.migration(&document.migration)?;
        let mut keys = keys.clone();
        let mut failure = "other writers keep changing this document".to_owned();
        let mut attempts = self.retry.attempts();
        while attempts.next().await {
            let (known, throttled) = (keys.0.len(), window.throttled());
            match self.assemble_once(migration, document, &mut keys).await {
                Ok(Some(written)) => return Ok(written),
                // The assembly found another key of the document. This does not count as a failed
                // attempt.
                Ok(None) if keys.0.len() > known => attempts.restart(),
                Ok(None) => {}
                Err(Failure::Retry(reason)) => {
                    failure = reason;
                    window.wait_for_capacity(&mut attempts, throttled);
                }
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
        Err(Failure::Retry(failure))
    }

    /// Makes one attempt to assemble a document. Returns whether a document was written; `None` if
    /// the caller must try again.
    async fn assemble_once(
        &self,
        migration: &Migration,
        document: &Document,
        keys: &mut Keys,
    ) -> Result<Option<bool>, Failure> {
        let table = migration.documents_of(&document.parts);
        let table = table.ok_or_else(|| {
            Failure::Fatal(format!("table `{}` stores no parts of documents", document.parts))
        })?;
        // The documents must be read before the parts, as the module's documentation explains.
        let mut standing: BTreeMap<PrimaryKey, Option<Item>> = BTreeMap::new();
        for key in &keys.0 {
            let target = Target {
                migration: document.migration.clone(),
                table: table.to_owned(),
                key: key.clone(),
                adopts: true,
            };
            standing.insert(key.clone(), self.read(&target, &self.key(&target)?).await?);
        }
        let items = self.partition(migration, document).await?;
        let assembled = migration.assembled(document, &items, keys).map_err(Failure::fatal)?;
        if let Some(key) = assembled
            .targets
            .keys()
            .map(|target| &target.key)
            .find(|key| !standing.contains_key(key))
        {
            keys.0.insert(key.clone());
            return Ok(None);
        }
        if let Some(reason) = &assembled.refused {
            let text = self.partition_text(migration, document);
            let (name, parts) = (&document.migration, &document.parts);
            let kind = ProblemKind::Unassembled;
            self.control.note_problem(kind, name, parts, &text, &reason.to_string()).await?;
        }
        let source = self.source(migration, document);
        let mut written = false;
        for (target, item) in assembled.targets {
            let stands = standing.get(&target.key).and_then(Option::as_ref);
            match self.put_assembled(&target, &source, stands, item).await? {
                TargetPut::Written => written = true,
                TargetPut::Refused(reason) => {
                    self.note_problem(ProblemKind::Refused, &target, &self.key(&target)?, &reason)
                        .await?;
                }
                TargetPut::GuardFailed(_) => return Ok(None),
            }
        }
        Ok(Some(written))
    }

    async fn put_assembled(
        &self,
        target: &Target,
        source: &str,
        stands: Option<&Item>,
        item: Option<Item>,
    ) -> Result<TargetPut, Failure> {
        let key = self.key(target)?;
        let known = match stands.filter(|item| item.contains_key(MARK)) {
            Some(item) => match Registers::from_item(item) {
                Ok(registers) => Some(registers),
                Err(error) => return Ok(TargetPut::Refused(error.to_string())),
            },
            None => None,
        };
        let said = Document::restated(known.as_ref(), source, item);
        if said.is_tombstone()
            && let Some((_, register)) = said.only()
        {
            self.note_tombstone(target, &key, &register.stamp).await?;
        }
        self.put_over(target, &key, &said, stands).await
    }

    /// Returns all items of a partition with strong consistency, in the order of the sort keys.
    pub(super) async fn partition(
        &self,
        migration: &Migration,
        document: &Document,
    ) -> Result<Vec<Item>, Failure> {
        let name = migration.schema(&document.parts).map(|schema| schema.partition.name.as_str());
        let value = to_sdk(&document.partition.to_attribute_value());
        let (mut items, mut start) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let answer = self
                .client
                .query()
                .table_name(&document.parts)
                .consistent_read(true)
                .key_condition_expression("#p = :p")
                .expression_attribute_names("#p", name.unwrap_or_default())
                .expression_attribute_values(":p", value.clone())
                .set_exclusive_start_key(start)
                .send()
                .await
                .map_err(|error| request_failure("Query", &document.parts, PLAN_TABLE, &error))?;
            let page: Vec<_> = answer.items.unwrap_or_default();
            for item in page {
                items.push(from_sdk_item(item)?);
            }
            start = answer
                .last_evaluated_key
                .filter(|key: &std::collections::HashMap<String, SdkValue>| !key.is_empty());
            if start.is_none() {
                return Ok(items);
            }
        }
        Err(Failure::Fatal(format!("a partition of table `{}` has too many pages", document.parts)))
    }

    fn source(&self, migration: &Migration, document: &Document) -> String {
        let schema = migration.schema(&document.parts);
        document.source(schema.map_or("", |schema| schema.partition.name.as_str()))
    }

    pub(super) fn partition_text(&self, migration: &Migration, document: &Document) -> String {
        let schema = migration.schema(&document.parts);
        let name = schema.map_or("", |schema| schema.partition.name.as_str());
        item_to_string(&Item::new().with(name, document.partition.to_attribute_value()))
    }
}
