//! Creates the control table if no CloudFormation template has created it.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    StreamSpecification, StreamViewType, TableStatus,
};

use crate::migrate::control_table::Control;
use crate::migrate::failure::{Result, fatal, of_request};
use client::aws_host;
use client::sdk_error::is_not_found;

/// Timeout for a new control table to become active. On AWS, activation takes several seconds.
const MADE_LIMIT: Duration = Duration::from_secs(120);
const MADE_LOOK: Duration = Duration::from_millis(500);

impl Control {
    /// Returns why a missing control table is not created automatically; `None` if the table exists
    /// or may be created. On AWS, functions read only the control table of their stack. A table
    /// that is created because of a typing error would cost money and have no effect.
    pub(crate) async fn missing(
        &self,
        endpoint: &str,
        is_asked_for: bool,
    ) -> Result<Option<String>> {
        if may_make(endpoint, is_asked_for) || self.status().await?.is_some() {
            return Ok(None);
        }
        Ok(Some(format!(
            "no control table `{}` at `{endpoint}`: name the stack's control table (stack output ControlTableName) with --control-table; or create a new one with --create-control-table and use --local-workers, because no function reads the stream of a new table",
            self.table
        )))
    }

    /// Creates the table if it does not exist, and waits until it is active.
    pub(crate) async fn ensure(&self) -> Result<()> {
        if self.status().await?.is_none() {
            self.create().await?;
        }
        let begun = Instant::now();
        while self.status().await? != Some(TableStatus::Active) {
            if begun.elapsed() > MADE_LIMIT {
                return Err(fatal!(
                    "the control table `{}` is not active after {} s; run the command again when it is active",
                    self.table,
                    MADE_LIMIT.as_secs()
                ));
            }
            tokio::time::sleep(MADE_LOOK).await;
        }
        Ok(())
    }

    /// Returns the table's status; `None` if the table does not exist.
    async fn status(&self) -> Result<Option<TableStatus>> {
        match self.client.describe_table().table_name(&self.table).send().await {
            Ok(answer) => Ok(answer.table.and_then(|table| table.table_status)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => {
                let doing = format!("cannot describe the control table `{}`", self.table);
                Err(of_request(&doing, &error))
            }
        }
    }

    async fn create(&self) -> Result<()> {
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
            // Another process created the table at the same time.
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(|error| error.is_resource_in_use_exception()) =>
            {
                Ok(())
            }
            created => created
                .map(drop)
                .map_err(|error| of_request("cannot create the control table", &error)),
        }
    }
}

/// Returns true if a control table may be created automatically: on a local store, or if the
/// operator requests it.
fn may_make(endpoint: &str, is_asked_for: bool) -> bool {
    is_asked_for || !aws_host::is_on_aws(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::store::TestStore;

    const AWS: &str = "https://dynamodb.eu-west-3.amazonaws.com";

    #[test]
    fn on_aws_a_control_table_is_created_only_on_request() {
        for (endpoint, is_asked_for, expected) in [
            (AWS, false, false),
            (AWS, true, true),
            ("http://127.0.0.1:8000", false, true),
            ("http://127.0.0.1:8000", true, true),
        ] {
            assert_eq!(may_make(endpoint, is_asked_for), expected, "{endpoint} {is_asked_for}");
        }
    }

    #[tokio::test]
    async fn a_missing_control_table_on_aws_is_reported_with_a_remedy() {
        let store = TestStore::open().await;
        let table = "weir-migrations".to_owned();
        let control = Control::new(client::endpoint::client(&store.url), table);
        let why = control.missing(AWS, false).await.unwrap().unwrap();
        for part in ["`weir-migrations`", AWS, "--control-table", "--create-control-table"] {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(control.status().await, Ok(None), "nothing was made");
        assert_eq!(control.missing(AWS, true).await, Ok(None));
        assert_eq!(control.missing(&store.url, false).await, Ok(None));
        control.ensure().await.unwrap();
        assert_eq!(control.missing(AWS, false).await, Ok(None));
    }
}
