//! Making the control table, where no template has made it.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    StreamSpecification, StreamViewType, TableStatus,
};

use super::control::{Control, failed};

/// How long is waited for a control table that is being made; on AWS that takes some seconds.
const MADE_LIMIT: Duration = Duration::from_secs(120);
const MADE_LOOK: Duration = Duration::from_millis(500);

impl Control {
    /// Makes the table if it is not there, and waits until it can be written.
    pub(crate) async fn ensure(&self) -> Result<(), String> {
        if self.status().await?.is_none() {
            self.create().await?;
        }
        let begun = Instant::now();
        while self.status().await? != Some(TableStatus::Active) {
            if begun.elapsed() > MADE_LIMIT {
                return Err(format!(
                    "the control table `{}` is not active after {} s; say this again when it is",
                    self.table,
                    MADE_LIMIT.as_secs()
                ));
            }
            tokio::time::sleep(MADE_LOOK).await;
        }
        Ok(())
    }

    /// The table's status; none if there is no such table.
    async fn status(&self) -> Result<Option<TableStatus>, String> {
        match self.client.describe_table().table_name(&self.table).send().await {
            Ok(answer) => Ok(answer.table.and_then(|table| table.table_status)),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(|error| error.is_resource_not_found_exception()) =>
            {
                Ok(None)
            }
            Err(error) => {
                let doing = format!("the control table `{}` cannot be described", self.table);
                Err(failed(&doing, &error))
            }
        }
    }

    async fn create(&self) -> Result<(), String> {
        let attribute = |name: &str| {
            AttributeDefinition::builder()
                .attribute_name(name)
                .attribute_type(ScalarAttributeType::S)
                .build()
                .map_err(|error| error.to_string())
        };
        let key = |name: &str, kind| {
            KeySchemaElement::builder()
                .attribute_name(name)
                .key_type(kind)
                .build()
                .map_err(|error| error.to_string())
        };
        let stream = StreamSpecification::builder()
            .stream_enabled(true)
            .stream_view_type(StreamViewType::NewAndOldImages)
            .build()
            .map_err(|error| error.to_string())?;
        let created = self
            .client
            .create_table()
            .table_name(&self.table)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(attribute("migration")?)
            .attribute_definitions(attribute("entry")?)
            .key_schema(key("migration", KeyType::Hash)?)
            .key_schema(key("entry", KeyType::Range)?)
            .stream_specification(stream)
            .send()
            .await;
        match created {
            // Somebody else makes it at the same time.
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(|error| error.is_resource_in_use_exception()) =>
            {
                Ok(())
            }
            created => {
                created.map(drop).map_err(|e| failed("the control table cannot be made", &e))
            }
        }
    }
}
