// Code that the tests of the console share: a headless Chromium, `weir up` in a separate folder, and two projects
// with data for every page. `shop` has five functions on one table, and a migration; `pipelines` is the
// template of this repository.
const assert = require("node:assert/strict");
const { spawn, spawnSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");
const lib = require("@aws-sdk/lib-dynamodb");
const { DynamoDBClient, CreateTableCommand } = require("@aws-sdk/client-dynamodb");
const puppeteer = require("puppeteer-core");

// The commands below find the `weir up` of their folder, not the store that the other clients use.
delete process.env.AWS_ENDPOINT_URL_DYNAMODB;
delete process.env.AWS_ENDPOINT_URL_DYNAMODB_STREAMS;

const WEIR = process.env.WEIR ?? path.join(__dirname, "../../target/debug/weir");
const ROOT = path.join(__dirname, "../..");

// A function on the stream of orders: its name, its code, more properties of its mapping, and the bucket it writes to.
const reader = (name, code, more, bucket) => `  ${name}:
    Type: AWS::Serverless::Function
    Properties:
      InlineCode: ${JSON.stringify(code)}
      ${bucket ? `Environment: {Variables: {BUCKET: ${bucket}}}` : ""}
      Events:
        Orders:
          Type: DynamoDB
          Properties: {Stream: !GetAtt Orders.StreamArn, StartingPosition: TRIM_HORIZON${more}}
`;
const filter = (pattern) => `, FilterCriteria: {Filters: [{Pattern: '${JSON.stringify(pattern)}'}]}`;
// The filter of Ship matches; Thank's names an attribute that no order has; Bill fails while the file `closed`
// exists; Notify fails for an order without an address, and the record is discarded; Report is disabled.
const shopTemplate = (closed) => `Transform: AWS::Serverless-2016-10-31
Globals: {Function: {Runtime: nodejs22.x, Handler: index.handler, Timeout: 5}}
Resources:
${reader("Ship", "exports.handler = async (event) => { console.log('shipping', event.Records.length); };", filter({ dynamodb: { NewImage: { state: { S: ["PAID"] } } } }), "labels")}
${reader("Thank", "exports.handler = async () => {};", filter({ dynamodb: { NewImage: { status: { S: ["PAID"] } } } }))}
${reader("Bill", `exports.handler = async () => { if (require('fs').existsSync(${JSON.stringify(closed)})) throw new Error('the bank does not answer'); };`, "", "invoices")}
${reader("Notify", "exports.handler = async ({ Records: [record] }) => { const { id, email } = record.dynamodb.NewImage ?? {}; console.log('order', id?.S); if (!email) throw new Error(`order ${id?.S} has no e-mail address`); };", ", BatchSize: 1, MaximumRetryAttempts: 1, DestinationConfig: {OnFailure: {Type: S3, Destination: !GetAtt Failures.Arn}}")}
${reader("Report", "exports.handler = async () => {};", ", Enabled: false")}
  Failures: {Type: AWS::S3::Bucket, Properties: {BucketName: failures}}
  Invoices: {Type: AWS::S3::Bucket, Properties: {BucketName: invoices}}
  Labels: {Type: AWS::S3::Bucket, Properties: {BucketName: labels}}
  Orders:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: orders
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions:
        - {AttributeName: id, AttributeType: S}
        - {AttributeName: customer, AttributeType: S}
        - {AttributeName: placed, AttributeType: S}
      KeySchema: [{AttributeName: id, KeyType: HASH}]
      GlobalSecondaryIndexes:
        - IndexName: by-customer
          KeySchema: [{AttributeName: customer, KeyType: HASH}, {AttributeName: placed, KeyType: RANGE}]
          Projection: {ProjectionType: ALL}
      StreamSpecification: {StreamViewType: NEW_AND_OLD_IMAGES}
`;
const PLAN = `migration: shop
kind: restructure
from:
  - table: orders
    items:
      - to: shop
        transform: '. + {kind: "order"}'
        key: {pk: 'ORDER#{id}'}
inverse:
  - table: shop
    items:
      - to: orders
        transform: del(.kind, .pk)
gate_seconds: 1
function_seconds: 10
`;
const ORDERS = [
  ["A-1001", "ada", "OPEN", 1999], ["A-1002", "bo", "PAID", 4250], ["A-1003", "ada", "PAID", 899],
  ["A-1004", "cleo", "OPEN", 12900], ["A-1005", "dan", "CANCELLED", 1999], ["A-1006", "ada", "PAID", 3300],
];
// The order for which Notify fails.
const UNREACHABLE = "A-1004";

// The processes that `withBrowser` ends.
const children = [];
function keep(child) {
  children.push(child);
  return child;
}

async function until(what, seconds, look, log) {
  for (let tries = 0; tries < seconds * 4; tries += 1) {
    const found = await look();
    if (found) return found;
    await sleep(250);
  }
  throw new Error(`waited ${seconds} s for ${what}${log ? `: ${fs.readFileSync(log, "utf8").slice(-3000)}` : ""}`);
}

// Starts `weir up` in a folder, and resolves to its process and published addresses.
async function up(folder, template, more = []) {
  const log = fs.openSync(path.join(folder, "up.log"), "a");
  const ports = ["--port", "0", "--s3-port", "0", "--invoke-port", "0", "--console-port", "0"];
  const child = keep(spawn(WEIR, ["up", "--template", template, ...ports, ...more], { cwd: folder, stdio: ["ignore", log, log] }));
  const file = path.join(folder, ".weir/running.json");
  const running = await until("weir up", 120, () => {
    if (child.exitCode !== null) throw new Error(fs.readFileSync(path.join(folder, "up.log"), "utf8"));
    if (!fs.existsSync(file)) return undefined;
    const known = JSON.parse(fs.readFileSync(file, "utf8"));
    return known.process === child.pid && known.console ? known : undefined;
  });
  return { child, running };
}

function weir(folder, ...args) {
  const done = spawnSync(WEIR, args, { cwd: folder, encoding: "utf8" });
  return { code: done.status, out: done.stdout, err: done.stderr };
}

async function end({ child }) {
  if (child.exitCode === null && child.signalCode === null) child.kill("SIGINT");
  await until("weir up to end", 30, () => child.exitCode !== null || child.signalCode !== null);
}

const documentsOf = (running) => lib.DynamoDBDocumentClient.from(new DynamoDBClient({ endpoint: running.dynamodb }));
const put = (running, TableName, Item) => documentsOf(running).send(new lib.PutCommand({ TableName, Item }));

async function createTable(running, TableName, key) {
  await new DynamoDBClient({ endpoint: running.dynamodb }).send(new CreateTableCommand({
    TableName, BillingMode: "PAY_PER_REQUEST", AttributeDefinitions: [{ AttributeName: key, AttributeType: "S" }],
    KeySchema: [{ AttributeName: key, KeyType: "HASH" }],
    StreamSpecification: { StreamEnabled: true, StreamViewType: "NEW_AND_OLD_IMAGES" },
  }));
}

// Starts the shop in a folder, with a closed bank. After `prepare`, it gets its orders. Resolves when each mapping has
// done what it can.
async function startShop(folder, more = [], prepare = async () => {}) {
  const closed = path.join(folder, "closed");
  fs.writeFileSync(closed, "");
  fs.writeFileSync(path.join(folder, "template.yaml"), shopTemplate(closed));
  const started = await up(folder, "template.yaml", more);
  const { running } = started;
  await prepare(running.console);
  for (const [position, [id, customer, state, total]] of ORDERS.entries()) {
    const email = id === UNREACHABLE ? {} : { email: `${customer}@shop.example` };
    await put(running, "orders", { id, customer, state, total, ...email, placed: `2026-11-2${position}`, lines: [{ sku: "tea", count: 2 }] });
  }
  const figure = (pipelines, name, member) => pipelines.mappings.find((it) => it.mapping === `${name}Orders`)?.figures?.[member] ?? 0;
  await until("the orders to be read", 90, async () => {
    const pipelines = await (await fetch(`${running.console}/pipelines.json`)).json();
    return figure(pipelines, "Ship", "delivered") === 3 && figure(pipelines, "Thank", "filtered") === ORDERS.length
      && figure(pipelines, "Notify", "discarded") === 1 && figure(pipelines, "Notify", "delivered") === ORDERS.length - 1
      && figure(pipelines, "Bill", "failed_invocations") > 0;
  }, path.join(folder, "up.log"));
  return { ...started, openTheBank: () => fs.unlinkSync(closed) };
}

// Starts a migration of a plan and its workers on this machine.
async function migrate(folder, name, plan, more = []) {
  fs.writeFileSync(path.join(folder, `${name}.yaml`), plan);
  const file = path.join(folder, `${name}.log`);
  const log = fs.openSync(file, "a");
  const start = ["migrate", "start", `${name}.yaml`, "--local-workers", "1", "--package", path.join(ROOT, "functions/processor"), ...more];
  const workers = keep(spawn(WEIR, start, { cwd: folder, stdio: ["ignore", log, log] }));
  await until("the migration to begin", 60, () => weir(folder, "migrate", "status", name).code === 0, file);
}

// Copies the orders to a new table, up to the comparison before a cut-over.
async function migrateShop(folder, running) {
  await createTable(running, "shop", "pk");
  await migrate(folder, "shop", PLAN);
  for (const verb of ["wait", "verify"]) {
    const done = weir(folder, "migrate", verb, "shop", "--timeout", "60");
    assert.equal(done.code, 0, done.err + fs.readFileSync(path.join(folder, "shop.log"), "utf8"));
  }
}

// The five pipelines of the repository's template, with data in each.
async function startPipelines(folder) {
  const started = await up(folder, path.join(ROOT, "template.yaml"));
  const { running } = started;
  const soon = Math.floor(Date.now() / 1000) + 3600;
  for (const [year, title] of [[1927, "Metropolis"], [1931, "M"], [1922, "Nosferatu"], [1920, "Genuine"]]) {
    await put(running, "movies", { year, title, rating: 7 });
    await put(running, "movies", { year, title, rating: 8.3, expires_at: soon });
  }
  for (const rating of [7.9, 8.1]) await put(running, "movies", { year: 2013, title: "Rush", rating, genres: ["drama", "sport"] });
  for (let slot = 0; slot < 5; slot += 1) await put(running, "votes", { slot: `poll-1#${slot}`, votes: slot + 1 });
  await put(running, "products", { productID: 7, productName: "Chai", quantityPerUnit: "10 boxes" });
  for (const orderID of [1, 2, 3]) await put(running, "order-lines", { orderID, productID: 7, productName: "Chai", quantity: orderID });
  await put(running, "products", { productID: 7, productName: "Chai, organic", quantityPerUnit: "10 boxes" });
  await until("the records to be processed", 60, () => weir(folder, "status", "--exit-code").code === 0);
  assert.equal(weir(folder, "clock", "advance", "24h").code, 0);
  assert.equal(weir(folder, "ttl", "sweep").code, 0);
  await until("the archive", 60, () => weir(folder, "status", "--exit-code").code === 0);
  return started;
}

async function launch() {
  const { default: chromium } = await import(require.resolve("@sparticuz/chromium"));
  return puppeteer.launch({
    args: puppeteer.defaultArgs({ args: chromium.args, headless: "shell" }),
    executablePath: process.env.CHROMIUM ?? (await chromium.executablePath()), headless: "shell",
  });
}

// Runs `use` with a browser and a function that makes folders; ends all processes and removes the folders afterwards.
async function withBrowser(use) {
  const browser = await launch();
  const folders = [];
  const folder = (name) => {
    folders.push(fs.mkdtempSync(path.join(os.tmpdir(), `console-${name}-`)));
    return folders.at(-1);
  };
  try {
    await use(browser, folder);
  } finally {
    await browser.close();
    await Promise.allSettled(children.map((child) => end({ child })));
    for (const made of folders) fs.rmSync(made, { recursive: true, force: true });
  }
}

const textOf = (page) => page.$eval("main", (main) => main.innerText);
const twin = async (base, address) => (await fetch(base + address)).json();

module.exports = {
  ORDERS, ROOT, UNREACHABLE, WEIR, createTable, documentsOf, end, keep, migrate, migrateShop, put, startPipelines, startShop,
  textOf, twin, until, up, weir, withBrowser,
};
