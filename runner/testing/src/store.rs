//! A store in this process, for tests of its clients.

use std::net::{Ipv4Addr, SocketAddr};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    StreamSpecification, StreamViewType, TimeToLiveSpecification,
};
use server::store::{Config, Store};
use tempfile::TempDir;

use client::endpoint;

/// A store in its own temporary folder, which is removed when this value is dropped.
pub struct TestStore {
    /// The store's endpoint.
    pub url: String,
    /// A client for the endpoint.
    pub client: Client,
    /// The store itself.
    pub store: Store,
    _folder: TempDir,
}

impl TestStore {
    /// Opens a store with one replica.
    ///
    /// # Panics
    /// When the store cannot be opened.
    pub async fn open() -> Self {
        Self::with_replicas(1).await
    }

    /// Opens a store with this number of replicas.
    ///
    /// # Panics
    /// When the store cannot be opened.
    pub async fn with_replicas(replicas: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(config(&folder, replicas), Box::new(|_| ())).await.unwrap();
        Self::serve(store, folder).await
    }

    /// Opens a store with one replica, without background ticks, so that no item expires.
    ///
    /// # Panics
    /// When the store cannot be opened.
    pub async fn without_ticks() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_without_ticks(config(&folder, 1), Box::new(|_| ())).await.unwrap();
        Self::serve(store, folder).await
    }

    async fn serve(store: Store, folder: TempDir) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bound = server::gate::BoundListener::new("store", address).await.unwrap();
        let url = format!("http://{}", bound.address());
        tokio::spawn(server::http::serve(bound, store.clone(), std::future::pending()));
        Self { client: endpoint::client(&url), url, store, _folder: folder }
    }

    /// Creates a table with a stream and the partition key `p`, a string.
    pub async fn table(&self, name: &str) {
        let attribute = AttributeDefinition::builder().attribute_name("p");
        let attribute = attribute.attribute_type(ScalarAttributeType::S).build().unwrap();
        let key = KeySchemaElement::builder().attribute_name("p").key_type(KeyType::Hash);
        let stream = StreamSpecification::builder().stream_enabled(true);
        let stream = stream.stream_view_type(StreamViewType::NewAndOldImages).build().unwrap();
        let request = self.client.create_table().table_name(name);
        let request = request.attribute_definitions(attribute).key_schema(key.build().unwrap());
        let request = request.billing_mode(BillingMode::PayPerRequest).stream_specification(stream);
        request.send().await.unwrap();
    }

    /// Creates a table without a stream, with a partition key and a sort key, both strings.
    pub async fn table_of(&self, name: &str, partition: &str, sort: &str) {
        let text = ScalarAttributeType::S;
        self.table_with(name, &[(partition, text.clone()), (sort, text)]).await;
    }

    /// Creates a table without a stream, with these key attributes: the partition key, and the sort
    /// key if there is one.
    pub async fn table_with(&self, name: &str, keys: &[(&str, ScalarAttributeType)]) {
        let mut request = self.client.create_table().table_name(name);
        for ((key, attribute_type), key_type) in keys.iter().zip([KeyType::Hash, KeyType::Range]) {
            let attribute = AttributeDefinition::builder().attribute_name(*key);
            let attribute = attribute.attribute_type(attribute_type.clone()).build().unwrap();
            let schema = KeySchemaElement::builder().attribute_name(*key).key_type(key_type);
            request = request.attribute_definitions(attribute).key_schema(schema.build().unwrap());
        }
        request.billing_mode(BillingMode::PayPerRequest).send().await.unwrap();
    }

    /// Enables the TTL of a table for an attribute.
    pub async fn expire_by(&self, table: &str, attribute: &str) {
        let setting = TimeToLiveSpecification::builder().enabled(true).attribute_name(attribute);
        let request = self.client.update_time_to_live().table_name(table);
        request.time_to_live_specification(setting.build().unwrap()).send().await.unwrap();
    }
}

fn config(folder: &TempDir, replicas: u64) -> Config {
    Config {
        directory: folder.path().to_owned(),
        region: "us-east-1".to_owned(),
        account: "000000000000".to_owned(),
        replicas,
        arcs: 1,
    }
}
