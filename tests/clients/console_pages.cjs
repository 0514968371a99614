// The console in a headless Chromium: every page that the navigation and the pages link to, with its JSON twin,
// its weight and time, axe-core's rules, its content policy, and without JavaScript; actions with a right and
// a wrong token; and a store that goes away and comes back.
// With SCREENSHOTS=docs/images it also makes the pictures of the documents anew.
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
const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
// What a page may weigh, in bytes, and how long it may take here, in milliseconds. The goal is 50 ms for a release
// build on a quiet machine. Here a development build shares two cores with a browser and other tests: a request to the
// store takes some ten milliseconds then, and the page of a migration sends ten, of which some wait for others.
const PAGE_BYTES_MAX = 60 * 1024;
const SCRIPT_BYTES_MAX = 10 * 1024;
const PAGE_MS_MAX = 1000;
// Pages that are visited at most: each page of the console links to a bounded number of others.
const PAGES_MAX = 120;

// Four functions on one table: one gets what it asks for, one asks for a name that no item has, one fails, and one
// is disabled.
const TEMPLATE = `Transform: AWS::Serverless-2016-10-31
Globals: {Function: {Runtime: nodejs22.x, Handler: index.handler, Timeout: 5}}
Resources:
  Ship:
    Type: AWS::Serverless::Function
    Properties:
      InlineCode: "exports.handler = async (event) => { console.log('shipping', event.Records.length); };"
      Events:
        Paid: {Type: DynamoDB, Properties: {Stream: !GetAtt Orders.StreamArn, StartingPosition: TRIM_HORIZON, FilterCriteria: {Filters: [{Pattern: '{"dynamodb":{"NewImage":{"state":{"S":["PAID"]}}}}'}]}}}
  Thank:
    Type: AWS::Serverless::Function
    Properties:
      InlineCode: "exports.handler = async () => {};"
      Events:
        Paid: {Type: DynamoDB, Properties: {Stream: !GetAtt Orders.StreamArn, StartingPosition: TRIM_HORIZON, FilterCriteria: {Filters: [{Pattern: '{"dynamodb":{"NewImage":{"status":{"S":["PAID"]}}}}'}]}}}
  Bill:
    Type: AWS::Serverless::Function
    Properties:
      InlineCode: "exports.handler = async () => { throw new Error('the bank does not answer'); };"
      Events:
        All: {Type: DynamoDB, Properties: {Stream: !GetAtt Orders.StreamArn, StartingPosition: TRIM_HORIZON}}
  Report:
    Type: AWS::Serverless::Function
    Properties:
      InlineCode: "exports.handler = async () => {};"
      Events:
        All: {Type: DynamoDB, Properties: {Stream: !GetAtt Orders.StreamArn, StartingPosition: TRIM_HORIZON, Enabled: false}}
  Orders:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: orders
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: id, AttributeType: S}]
      KeySchema: [{AttributeName: id, KeyType: HASH}]
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

async function until(what, seconds, look, log) {
  for (let tries = 0; tries < seconds * 4; tries += 1) {
    const found = await look();
    if (found) return found;
    await sleep(250);
  }
  throw new Error(`waited ${seconds} s for ${what}${log ? `: ${fs.readFileSync(log, "utf8")}` : ""}`);
}

// Starts `weir up` in a folder, and resolves to its process and published addresses.
async function up(folder, template, more = []) {
  const log = fs.openSync(path.join(folder, "up.log"), "a");
  const ports = ["--port", "0", "--s3-port", "0", "--invoke-port", "0", "--console-port", "0"];
  const child = spawn(WEIR, ["up", "--template", template, ...ports, ...more], { cwd: folder, stdio: ["ignore", log, log] });
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

async function end(started) {
  started.child.kill("SIGINT");
  await until("weir up to end", 30, () => started.child.exitCode !== null || started.child.signalCode !== null);
}

// Visits each page from the first one on; resolves to the addresses. `each` is called with every page.
async function visit(browser, base, each) {
  const seen = new Set(["/pipelines"]);
  const open = [...seen];
  while (open.length > 0 && seen.size <= PAGES_MAX) {
    const address = open.shift();
    const page = await browser.newPage();
    try {
      const links = await each(page, address);
      for (const link of links) {
        const url = new URL(link, base);
        const isPage = url.origin === base && !/^\/(assets|events)/.test(url.pathname) && !/(\.|%2E)(json|jsonl|csv)$/.test(url.pathname);
        const next = url.pathname + url.search;
        // Pages of a query differ by their query string; one of each path is enough.
        if (isPage && ![...seen].some((known) => known.split("?")[0] === url.pathname)) {
          seen.add(next);
          open.push(next);
        }
      }
    } finally {
      await page.close();
    }
  }
  return [...seen];
}

const links = (page) => page.evaluate(() => [...document.querySelectorAll("a[href]")].map((a) => a.href));
const text = (page) => page.evaluate(() => document.querySelector("main").innerText);

// Checks one page; resolves to its links.
async function check(page, base, address, told) {
  const wrong = [];
  page.on("console", (message) => { if (message.type() === "error") wrong.push(message.text()); });
  page.on("pageerror", (error) => wrong.push(error.message));
  page.on("request", (request) => {
    if (!request.url().startsWith(base) && !request.url().startsWith("data:")) wrong.push(`asked ${request.url()}`);
  });
  const began = performance.now();
  const plain = await fetch(base + address);
  const html = await plain.text();
  const ms = performance.now() - began;
  assert.equal(plain.status, 200, `${address}: ${html.slice(0, 2000)}`);
  assert.ok(Buffer.byteLength(html) <= PAGE_BYTES_MAX, `${address} has ${Buffer.byteLength(html)} bytes`);
  assert.ok(ms <= PAGE_MS_MAX, `${address} took ${ms} ms`);
  assert.match(plain.headers.get("content-security-policy"), /default-src 'none'/);
  const [where, query] = address.split("?");
  const twin = await fetch(`${base}${where}.json${query ? `?${query}` : ""}`);
  assert.equal(twin.status, 200, `the JSON twin of ${address}`);
  const json = await twin.text();
  assert.doesNotThrow(() => JSON.parse(json), `the JSON twin of ${address}: ${json.slice(0, 500)}`);
  // Pages that stay up to date keep a connection open, so the network never becomes idle.
  await page.goto(base + address, { waitUntil: "load" });
  assert.ok((await text(page)).trim().length > 0, `${address} is empty`);
  const found = await links(page);
  assert.deepEqual(wrong, [], `${address} in Chromium`);
  told.push({ address, bytes: Buffer.byteLength(html), ms: Math.round(ms) });
  return found;
}

// axe-core's rules, for the light and the dark colours. It runs in a page without the content policy, which
// would refuse axe-core's own styles.
async function accessible(browser, base, address) {
  for (const value of ["light", "dark"]) {
    const page = await browser.newPage();
    await page.setBypassCSP(true);
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value }]);
    await page.goto(base + address, { waitUntil: "load" });
    await page.evaluate(AXE);
    const violations = await page.evaluate(async () => {
      const { violations } = await axe.run(document);
      return violations.map((rule) => `${rule.id}: ${rule.help}: ${rule.nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`);
    });
    assert.deepEqual(violations, [], `axe-core on ${address}, ${value}`);
    await page.close();
  }
}

async function withoutScript(browser, base, address) {
  const page = await browser.newPage();
  await page.setJavaScriptEnabled(false);
  await page.goto(base + address, { waitUntil: "load" });
  const html = await page.content();
  assert.ok(html.includes("<main") && html.length > 500, `${address} without JavaScript`);
  await page.close();
}

// The pages of which docs/images has a picture; those of the second project show what the first one has not.
const PICTURES = {
  shop: ["pipelines", "stream", "stream-filter", "tables", "tables-orders", "migrations-shop", "partitions-orders", "ring"],
  pipelines: ["archive", "versions", "counters", "copies"],
};

async function picture(browser, base, address, name) {
  const page = await browser.newPage();
  await page.setViewport({ width: 1200, height: 800 });
  await page.goto(base + address, { waitUntil: "load" });
  await page.screenshot({ path: path.join(process.env.SCREENSHOTS, `console-${name}.png`), fullPage: true });
  await page.close();
}

// A name for the picture of a page.
const nameOf = (address) => decodeURIComponent(address.split("?")[0]).replace(/[^A-Za-z0-9]+/g, "-").replace(/^-|-$/g, "");

async function checkAll(browser, base, pictures) {
  const told = [];
  const pages = await visit(browser, base, (page, address) => check(page, base, address, told));
  for (const address of pages) {
    await accessible(browser, base, address);
    await withoutScript(browser, base, address);
    if (process.env.SCREENSHOTS && pictures.includes(nameOf(address))) await picture(browser, base, address, nameOf(address));
  }
  const script = await (await fetch(`${base}/assets/console.js`)).text();
  assert.ok(Buffer.byteLength(script) <= SCRIPT_BYTES_MAX, "the script");
  const heaviest = told.reduce((a, b) => (a.bytes > b.bytes ? a : b));
  const slowest = told.reduce((a, b) => (a.ms > b.ms ? a : b));
  console.log(`console: ${told.length} pages, the largest ${heaviest.address} with ${heaviest.bytes} bytes, the slowest ${slowest.address} with ${slowest.ms} ms; no rule of axe-core is violated`);
  return told;
}

// Puts orders, of which some are paid, and copies them to a new table, up to the comparison before a cut-over.
async function shop(folder, running) {
  const client = new DynamoDBClient({ endpoint: running.dynamodb });
  const documents = lib.DynamoDBDocumentClient.from(client);
  for (const [id, state] of [["a-1", "OPEN"], ["a-2", "PAID"], ["a-3", "OPEN"], ["a-4", "PAID"], ["a-5", "CANCELLED"]]) {
    await documents.send(new lib.PutCommand({ TableName: "orders", Item: { id, state, total: 1999, lines: [{ sku: "tea", count: 2 }] } }));
  }
  await client.send(new CreateTableCommand({
    TableName: "shop", BillingMode: "PAY_PER_REQUEST", AttributeDefinitions: [{ AttributeName: "pk", AttributeType: "S" }],
    KeySchema: [{ AttributeName: "pk", KeyType: "HASH" }],
    StreamSpecification: { StreamEnabled: true, StreamViewType: "NEW_AND_OLD_IMAGES" },
  }));
  fs.writeFileSync(path.join(folder, "plan.yaml"), PLAN);
  const log = fs.openSync(path.join(folder, "workers.log"), "a");
  const start = ["migrate", "start", "plan.yaml", "--local-workers", "1", "--package", path.join(ROOT, "functions/processor")];
  const workers = spawn(WEIR, start, { cwd: folder, stdio: ["ignore", log, log] });
  await until("the migration to begin", 60, () => weir(folder, "migrate", "status", "shop").code === 0, path.join(folder, "workers.log"));
  for (const verb of ["wait", "verify"]) {
    const done = weir(folder, "migrate", verb, "shop", "--timeout", "60");
    assert.equal(done.code, 0, done.err + fs.readFileSync(path.join(folder, "workers.log"), "utf8"));
  }
  return workers;
}

// The five pipelines of the repository's template, with something to see in each.
async function pipelines(folder, running) {
  const documents = lib.DynamoDBDocumentClient.from(new DynamoDBClient({ endpoint: running.dynamodb }));
  const put = (TableName, Item) => documents.send(new lib.PutCommand({ TableName, Item }));
  const soon = Math.floor(Date.now() / 1000) + 3600;
  for (const [year, title] of [[1927, "Metropolis"], [1931, "M"], [1922, "Nosferatu"], [1920, "Genuine"]]) {
    await put("movies", { year, title, rating: 7 });
    await put("movies", { year, title, rating: 8.3, expires_at: soon });
  }
  await put("movies", { year: 2013, title: "Rush", rating: 8.1 });
  for (let slot = 0; slot < 5; slot += 1) await put("votes", { slot: `poll-1#${slot}`, votes: slot + 1 });
  await put("products", { productID: 7, productName: "Chai", quantityPerUnit: "10 boxes" });
  await until("the records to be processed", 60, () => weir(folder, "status", "--exit-code").code === 0);
  assert.equal(weir(folder, "clock", "advance", "24h").code, 0);
  assert.equal(weir(folder, "ttl", "sweep").code, 0);
  await until("the archive", 60, () => weir(folder, "status", "--exit-code").code === 0);
}

// What a reader has to see, and what a button does, on the pages of the small project.
async function useIt(browser, base) {
  const page = await browser.newPage();
  await page.goto(`${base}/pipelines`, { waitUntil: "load" });
  const seen = await text(page);
  for (const word of ["Ship", "Thank", "Bill", "Report", "filtered", "disabled"]) assert.ok(seen.includes(word), `${word} in ${seen}`);
  const now = async () => (await (await fetch(`${base}/pipelines.json`)).json());
  assert.ok(await now());
  const buttons = await page.$$eval("header button", (all) => all.map((button) => button.innerText));
  const hour = buttons.findIndex((name) => name.includes("1 h"));
  assert.ok(hour >= 0, `no button for an hour in ${buttons}`);
  const before = await page.$eval("header", (header) => header.innerText);
  await Promise.all([page.waitForNavigation({ waitUntil: "load" }), (await page.$$("header button"))[hour].click()]);
  assert.notEqual(await page.$eval("header", (header) => header.innerText), before, "the clock advanced");
  for (const token of ["", "wrong"]) {
    const refused = await fetch(`${base}/clock/advance.json`, {
      method: "POST", body: new URLSearchParams({ by: "1h", token }), headers: { "Content-Type": "application/x-www-form-urlencoded" },
    });
    assert.ok(refused.status >= 400 && refused.status < 500, `a token "${token}" was answered with ${refused.status}`);
  }
  await page.close();
}

// A store that goes away: pages say so; when it is back, they work again.
async function withoutStore(folder) {
  const data = path.join(folder, "store");
  const log = path.join(folder, "store.log");
  const start = async (port) => {
    fs.writeFileSync(log, "");
    const child = spawn(path.join(path.dirname(WEIR), "local-store"), ["--data", data, "--port", String(port)], { stdio: ["ignore", fs.openSync(log, "a"), fs.openSync(log, "a")] });
    const found = await until("the store", 60, () => /http:\/\/127\.0\.0\.1:(\d+)/.exec(fs.readFileSync(log, "utf8")));
    return { child, port: Number(found[1]) };
  };
  const stop = async ({ child }) => {
    child.kill("SIGKILL");
    await until("the store to end", 30, () => child.signalCode !== null);
  };
  let store = await start(0);
  const shown = path.join(folder, "console.log");
  const out = fs.openSync(shown, "a");
  const child = spawn(WEIR, ["console", "--endpoint", `http://127.0.0.1:${store.port}`, "--port", "0"], { cwd: folder, stdio: ["ignore", out, out] });
  try {
    const base = (await until("the console", 60, () => /http:\/\/127\.0\.0\.1:\d+/.exec(fs.readFileSync(shown, "utf8").replace(`http://127.0.0.1:${store.port}`, ""))))[0];
    assert.equal((await fetch(`${base}/tables`)).status, 200);
    const tokens = await fetch(`${base}/clock/advance.json`, { method: "POST", body: new URLSearchParams({ by: "1h" }) });
    assert.equal(tokens.status, 403, "a console without --allow-writes writes nothing");
    await stop(store);
    const gone = await fetch(`${base}/tables`);
    assert.ok(gone.status >= 500, `without a store: ${gone.status}`);
    assert.match(await gone.text(), /<main/);
    store = await start(store.port);
    await until("the console to find the store again", 30, async () => (await fetch(`${base}/tables`)).status === 200);
  } finally {
    child.kill("SIGINT");
    await stop(store);
  }
}

async function main() {
  const { default: chromium } = await import(require.resolve("@sparticuz/chromium"));
  const browser = await puppeteer.launch({
    args: puppeteer.defaultArgs({ args: chromium.args, headless: "shell" }),
    executablePath: await chromium.executablePath(), headless: "shell",
  });
  const folders = ["shop", "pipelines", "alone"].map((name) => fs.mkdtempSync(path.join(os.tmpdir(), `console-${name}-`)));
  const started = [];
  try {
    fs.writeFileSync(path.join(folders[0], "template.yaml"), TEMPLATE);
    const small = await up(folders[0], "template.yaml");
    started.push(small);
    const workers = await shop(folders[0], small.running);
    const smallPages = await checkAll(browser, small.running.console, PICTURES.shop);
    await useIt(browser, small.running.console);
    workers.kill("SIGINT");
    await end(small);
    const whole = await up(folders[1], path.join(ROOT, "template.yaml"));
    started.push(whole);
    await pipelines(folders[1], whole.running);
    const pages = [...smallPages, ...(await checkAll(browser, whole.running.console, PICTURES.pipelines))].map((page) => page.address);
    for (const address of ["/pipelines", "/stream", "/tables", "/migrations", "/archive", "/versions", "/counters", "/copies", "/ring"]) {
      assert.ok(pages.some((page) => page.split("?")[0] === address), `no page leads to ${address}`);
    }
    await end(whole);
    await withoutStore(folders[2]);
  } finally {
    await browser.close();
    for (const { child } of started) child.kill("SIGKILL");
    for (const folder of folders) fs.rmSync(folder, { recursive: true, force: true });
  }
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
