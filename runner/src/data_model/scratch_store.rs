//! A store in this process and in a temporary folder, to try a model.

use std::net::{Ipv4Addr, SocketAddr};

use design::trial::Request;
use server::gate::BoundListener;
use server::store::{Config, Store};
use tempfile::TempDir;

use client::failure::{Failure, Result, fatal};
use client::interruption;
use client::output::say;

/// The Region and the account in the ARNs of the temporary store.
const REGION: &str = "us-east-1";
const ACCOUNT: &str = "000000000000";

/// A store with one replica. The folder is removed after the store has ended.
pub(super) struct ScratchStore {
    store: Store,
    _folder: TempDir,
}

/// A response of the store.
pub(super) struct Answer {
    pub(super) is_success: bool,
    pub(super) body: String,
}

impl ScratchStore {
    /// Opens an empty store.
    pub(super) async fn open() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("weir-model-").tempdir();
        let folder = folder.map_err(|error| {
            fatal!("cannot create a temporary folder: {error}; set TMPDIR to a folder that can be written")
        })?;
        let config = Config {
            directory: folder.path().to_owned(),
            region: REGION.to_owned(),
            account: ACCOUNT.to_owned(),
            replicas: 1,
            arcs: 1,
        };
        let store = Store::open(config, Box::new(server::fatal::end_process)).await;
        let store = store.map_err(Failure::fatal)?;
        Ok(Self { store, _folder: folder })
    }

    /// Executes a request on the store.
    pub(super) async fn send(&self, request: &Request) -> Answer {
        let target = format!("DynamoDB_20120810.{}", request.operation);
        let body = request.parameters.to_string();
        let response = server::api::handle(&self.store, &target, body.as_bytes()).await;
        Answer { is_success: response.status == 200, body: response.body }
    }

    /// Serves the store on this machine until Ctrl-C or SIGTERM.
    pub(super) async fn serve(&self, port: u16) -> Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let bound = BoundListener::new("store", address).await.map_err(Failure::fatal)?;
        say(&format!(
            "the store with the tables and items is at http://{}; Ctrl-C stops it and removes its data",
            bound.address()
        ));
        let stop = async {
            interruption::requested().await;
        };
        server::http::serve(bound, self.store.clone(), stop).await;
        Ok(())
    }
}
