//! What moves a migration on, said by two at the same time or after somebody died, on a store in this
//! process.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    StreamSpecification, StreamViewType,
};
use http::Method;
use rules::migration::Phase;
use rules::migration::plan::{Backfill, Kind, Output as Made, Plan, Source};
use serde_json::{Value, json};
use server::store::{Config, Store};
use tempfile::TempDir;

use super::Context;
use super::control::{Expect, Move, number, phase_of, s, text};
use super::held::{CUTOVER, Hold};
use super::start::begin;
use crate::endpoint;
use crate::exit::Exit;
use crate::output::Output;

const NAME: &str = "move";

/// A store on a folder of its own, for as long as this value lives.
struct Served {
    context: Context,
    _folder: TempDir,
}

impl Served {
    async fn clock(&self, change: Value) {
        endpoint::admin(Method::POST, &self.context.endpoint, "clock", &change).await.unwrap();
    }

    /// The fence with which the migration is active.
    async fn fence(&self) -> Option<i64> {
        self.context.control.active(NAME).await.unwrap().map(|(_, _, since)| since)
    }

    /// Waits until the migration is active with another fence than this one.
    async fn other_fence(&self, known: Option<i64>) -> Option<i64> {
        loop {
            let fence = self.fence().await;
            if fence != known {
                return fence;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn serve() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        directory: folder.path().to_owned(),
        region: "us-east-1".to_owned(),
        account: "000000000000".to_owned(),
        replicas: 1,
        arcs: 1,
    };
    let store = Store::open(config, Box::new(|_| ())).await.unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = server::listener::bind(address).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(server::http::serve(listener, store, std::future::pending()));
    let context = Context::new(&url, "weir-migrations", Output::Table);
    for table in ["cats", "pets"] {
        make(&context, table).await;
    }
    context.control.ensure().await.unwrap();
    Served { context, _folder: folder }
}

async fn make(context: &Context, table: &str) {
    let attribute = AttributeDefinition::builder().attribute_name("p");
    let attribute = attribute.attribute_type(ScalarAttributeType::S).build().unwrap();
    let key = KeySchemaElement::builder().attribute_name("p").key_type(KeyType::Hash);
    let stream = StreamSpecification::builder().stream_enabled(true);
    let stream = stream.stream_view_type(StreamViewType::NewAndOldImages).build().unwrap();
    let request = context.control.client.create_table().table_name(table);
    let request = request.attribute_definitions(attribute).key_schema(key.build().unwrap());
    let request = request.billing_mode(BillingMode::PayPerRequest).stream_specification(stream);
    request.send().await.unwrap();
}

fn plan() -> Plan {
    let output = Made { to: "pets".into(), transform: ".".into(), key: [].into() };
    Plan {
        migration: NAME.into(),
        kind: Kind::Restructure,
        from: vec![Source {
            table: "cats".into(),
            items: vec![output],
            split: None,
            archive: false,
        }],
        inverse: Vec::new(),
        backfill: Backfill::Scan,
        segments: 1,
        gate_seconds: 0,
        settle_seconds: 0,
        function_seconds: 1,
    }
}

#[tokio::test]
async fn two_who_begin_at_the_same_time_have_one_fence() {
    let served = serve().await;
    let (context, plan) = (&served.context, plan());
    // The first one waits for its fence for as long as the clock stands.
    served.clock(json!({"freeze": true})).await;
    let first = begin(context, &plan, 0);
    let meanwhile = async {
        let fence = served.other_fence(None).await;
        served.clock(json!({"advance_ms": 1_000})).await;
        let clock = async {
            served.other_fence(fence).await;
            served.clock(json!({"resume": true})).await;
        };
        tokio::join!(begin(context, &plan, 0), clock).0
    };
    let (first, second) = tokio::join!(first, meanwhile);
    let state = context.state(NAME).await.unwrap();
    assert_eq!(phase_of(&state), Phase::Copying, "{first:?} {second:?}");
    // The tasks were made after the fence with which the function passes records over.
    let since = i64::try_from(number(&state, "since")).unwrap();
    assert_eq!(served.fence().await, Some(since), "{first:?} {second:?}");
    assert!(first.unwrap_err().contains("somebody else took over"));
    second.unwrap();
    assert_eq!(text(&state, "holder"), None);
}

#[tokio::test]
async fn who_takes_a_switch_over_follows_the_sources_again() {
    let served = serve().await;
    let (context, control) = (&served.context, &served.context.control);
    // Somebody died after the migration was turned round.
    let expect = Expect::phases(&[Phase::None]);
    let held = Move { expect, to: Some(Phase::CuttingOver), why: "", now: 1 };
    let dead = |state: &mut super::Entry| {
        state.insert("holder".to_owned(), s("dead"));
    };
    control.to_phase(NAME, held, dead).await.unwrap();
    let expect = Expect::phases(&[Phase::CuttingOver]);
    control.set_active(NAME, expect, Some(("reverse", "f", 9))).await.unwrap();
    control.route(NAME, expect, "source", "none").await.unwrap();

    let hold = Hold::take(context, NAME, CUTOVER, "f", 7).await.unwrap();
    let ended = hold.decide(async {
        let active = control.active(NAME).await?;
        assert_eq!(active, Some(("forward".to_owned(), "f".to_owned(), 7)));
        Ok::<Result<(), Exit>, String>(Err(Exit::Refused))
    });
    assert!(matches!(ended.await, Ok(Err(Exit::Refused))));
    let route = control.get(NAME, "ROUTE").await.unwrap().unwrap();
    assert_eq!((text(&route, "read"), text(&route, "write")), (Some("source"), Some("source")));
    let state = context.state(NAME).await.unwrap();
    assert_eq!((phase_of(&state), text(&state, "holder")), (Phase::Ready, None));
}
