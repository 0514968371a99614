//! Migration: restructures a table while clients write to it. An order becomes one item for the
//! customer and the order, and one item for each line. The targets are compared with the expected
//! targets.
//!
//! This module computes the expected targets without the migration's rule.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    StreamSpecification, StreamViewType,
};
use futures::{StreamExt, TryStreamExt, stream};
use model::json::item_to_string;
use model::{AttributeValue, Item, Number};
use rules::migration::plan::{FUNCTION_SECONDS, Kind, Output as PlanOutput, Plan, Source};

use super::Progress;
use super::generator::Generator;
use crate::local_workers::Host;
use client::attribute::to_sdk_item;
use client::failure::{Context as _, Failure, Result, fatal};
use client::output::{Output, counted};
use local::system::System;
use operations::migrate::local_workers::{LocalWorkers as _, WorkerOptions};
use operations::migrate::{Context, api};

const SOURCE: &str = "demo-orders";
const TARGET: &str = "demo-shop";
const CONTROL: &str = "demo-migrations";
const NAME: &str = "demo";
/// The number of concurrent requests while the orders are loaded.
const WRITERS: usize = 32;
/// The pause between two changes of the writer, which limits it to about 300 changes per second.
const PAUSE: Duration = Duration::from_millis(3);
/// The maximum time for the copy and the comparison.
const LIMIT: Duration = Duration::from_secs(90);
/// The number of customers.
const CUSTOMERS: u64 = 50;

/// The results of this part of the demonstration.
pub(crate) struct Outcome {
    pub(crate) orders: u64,
    pub(crate) changes: u64,
    pub(crate) targets: usize,
    pub(crate) kills: u64,
    pub(crate) took: Duration,
}

/// The content of the source table by order: the customer and the number of lines.
type Truth = BTreeMap<u64, (u64, u64)>;

/// Writes orders, migrates them while a writer changes them, and compares.
pub(crate) async fn run(
    system: &System,
    orders: u64,
    directory: &Path,
    package_folder: &Path,
    progress: &Progress,
) -> Result<Outcome> {
    let client = system.dynamodb();
    create(client, SOURCE, "id", None).await?;
    create(client, TARGET, "pk", Some("sk")).await?;
    let mut generator = Generator::new(1492);
    let mut truth = Truth::new();
    for order in 0..orders {
        truth.insert(order, (generator.below(CUSTOMERS), 1 + generator.below(4)));
    }
    progress.note("orders: loading");
    stream::iter(truth.iter().map(|(order, state)| put(client, *order, *state)))
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<_>>()
        .await?;

    let context = Context::new(system.dynamodb_url().unwrap_or_default(), CONTROL, Output::Table);
    context.ensure_control_table().await?;
    let plan = plan();
    let options = WorkerOptions {
        endpoint: system.dynamodb_url().unwrap_or_default(),
        control_table: CONTROL,
        tables: vec![SOURCE.to_owned()],
        workers: 2,
        directory: &directory.join("migrate"),
        package_folder: package_folder.join("functions/processor"),
        timeout: Duration::from_secs(plan.function_seconds.into()),
        duplicate_deliveries: true,
    };
    let host = Host::start(options).await?;
    let stop = AtomicBool::new(false);
    let changes = AtomicU64::new(0);
    let started = Instant::now();
    let migrating = async {
        let done = migrate_and_kill(&context, &plan, &host, progress).await;
        stop.store(true, Ordering::Relaxed);
        done
    };
    let writing = write(client, &mut generator, &mut truth, &stop, &changes);
    let (kills, written) = tokio::join!(migrating, writing);
    let compared = match (&kills, written) {
        (Ok(_), Ok(())) => compare(client, &context, &truth, progress).await,
        (Err(error), _) => Err(error.clone()),
        (_, Err(error)) => Err(error),
    };
    Box::new(host).stop().await;
    Ok(Outcome {
        orders,
        targets: compared?,
        changes: changes.load(Ordering::Relaxed),
        kills: kills?,
        took: started.elapsed(),
    })
}

fn plan() -> Plan {
    let output = |transform: &str, sort: &str, partition: &str| PlanOutput {
        to: TARGET.to_owned(),
        transform: transform.to_owned(),
        key: [("pk", partition), ("sk", sort)]
            .map(|(name, template)| (name.to_owned(), template.to_owned()))
            .into(),
    };
    let items = vec![
        output("{id, customer}", "ORDER#{id}", "CUSTOMER#{customer}"),
        output(
            "select(.lines != []) | . as $order | .lines[] | {id: $order.id, line: .}",
            "LINE#{line}",
            "ORDER#{id}",
        ),
    ];
    Plan {
        migration: NAME.to_owned(),
        kind: Kind::Restructure,
        from: vec![Source { table: SOURCE.to_owned(), items, split: None, archive: false }],
        inverse: Vec::new(),
        backfill: rules::migration::plan::Backfill::Scan,
        segments: 4,
        gate_seconds: 1,
        settle_seconds: 5,
        function_seconds: FUNCTION_SECONDS,
        route: None,
    }
}

/// Copies the orders, and kills an instance during an invocation meanwhile.
async fn migrate_and_kill(
    context: &Context,
    plan: &Plan,
    host: &Host,
    progress: &Progress,
) -> Result<u64> {
    let started = Instant::now();
    api::begin(context, plan, 0).await?;
    let mut kills = 0;
    loop {
        let (phase, read) = api::phase(context, NAME).await?;
        progress.note(&format!("orders: {phase}, {read} read"));
        kills += u64::from(kills == 0 && host.kill_working_instance());
        if let Some(problem) = host.problem() {
            return Err(problem.to_string().into());
        }
        if phase == "tailing" && kills > 0 {
            return Ok(kills);
        }
        if started.elapsed() > LIMIT {
            return Err(fatal!("orders are still {phase} after {} s", LIMIT.as_secs()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Changes, adds and deletes orders until `stop` is set.
async fn write(
    client: &Client,
    generator: &mut Generator,
    truth: &mut Truth,
    stop: &AtomicBool,
    changes: &AtomicU64,
) -> Result<()> {
    let orders = truth.len() as u64;
    while !stop.load(Ordering::Relaxed) {
        let order = generator.below(orders + orders / 10);
        let is_delete = generator.below(5) == 0;
        if is_delete {
            let key = Item::new().with("id", Number::from(order));
            let request = client.delete_item().table_name(SOURCE).set_key(Some(to_sdk_item(&key)));
            request.send().await.context(|| "an order")?;
            truth.remove(&order);
        } else {
            let state = (generator.below(CUSTOMERS), generator.below(5));
            put(client, order, state).await?;
            truth.insert(order, state);
        }
        changes.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Runs the function's own comparison, and then a comparison that does not use the rule.
async fn compare(
    client: &Client,
    context: &Context,
    truth: &Truth,
    progress: &Progress,
) -> Result<usize> {
    progress.note("orders: comparing");
    let differences = api::differences(context, NAME, LIMIT).await?;
    if differences > 0 {
        let orders = counted(differences, "order differs", "orders differ");
        return Err(fatal!("{orders} from their targets"));
    }
    let mut expected: BTreeMap<String, u32> = BTreeMap::new();
    let mut expect = |item: Item| *expected.entry(item_to_string(&item)).or_default() += 1;
    for (order, (customer, lines)) in truth {
        let id = Number::from(*order);
        expect(
            Item::new()
                .with("pk", format!("CUSTOMER#{customer}"))
                .with("sk", format!("ORDER#{order}"))
                .with("id", id)
                .with("customer", Number::from(*customer)),
        );
        for line in 0..*lines {
            expect(
                Item::new()
                    .with("pk", format!("ORDER#{order}"))
                    .with("sk", format!("LINE#{line}"))
                    .with("id", id)
                    .with("line", Number::from(line)),
            );
        }
    }
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    for item in api::scan(client, TARGET).await? {
        *found.entry(item_to_string(&item)).or_default() += 1;
    }
    if found == expected {
        return Ok(found.len());
    }
    let wrong = expected.keys().find(|item| !found.contains_key(*item));
    let wrong = wrong.or_else(|| found.keys().find(|item| !expected.contains_key(*item)));
    Err(fatal!(
        "the target table has {} items instead of {}; for example, this item differs: {}",
        found.len(),
        expected.len(),
        wrong.map_or("none", String::as_str)
    ))
}

async fn put(client: &Client, order: u64, (customer, lines): (u64, u64)) -> Result<()> {
    let lines = (0..lines).map(|line| AttributeValue::N(Number::from(line))).collect();
    let item = Item::new()
        .with("id", Number::from(order))
        .with("customer", Number::from(customer))
        .with("lines", AttributeValue::L(lines));
    let request = client.put_item().table_name(SOURCE).set_item(Some(to_sdk_item(&item)));
    let sent = request.send().await;
    sent.map(drop).context(|| "cannot put an order")
}

async fn create(client: &Client, table: &str, partition: &str, sort: Option<&str>) -> Result<()> {
    let kind = if sort.is_some() { ScalarAttributeType::S } else { ScalarAttributeType::N };
    let mut request = client.create_table().table_name(table);
    for (name, key_type) in
        std::iter::once((partition, KeyType::Hash)).chain(sort.map(|name| (name, KeyType::Range)))
    {
        let attribute =
            AttributeDefinition::builder().attribute_name(name).attribute_type(kind.clone());
        let element = KeySchemaElement::builder().attribute_name(name).key_type(key_type);
        request = request
            .attribute_definitions(attribute.build().map_err(Failure::fatal)?)
            .key_schema(element.build().map_err(Failure::fatal)?);
    }
    let stream = StreamSpecification::builder()
        .stream_enabled(true)
        .stream_view_type(StreamViewType::NewAndOldImages)
        .build()
        .map_err(Failure::fatal)?;
    let request = request.billing_mode(BillingMode::PayPerRequest).stream_specification(stream);
    let created = request.send().await;
    created.map(drop).context(|| format!("table `{table}`"))
}
