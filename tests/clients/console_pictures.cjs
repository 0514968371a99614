// Makes the pictures of docs/console.md and README.md again, in docs/images: one of each page of the console, in a
// headless Chromium, with projects that show the purpose of each page. It takes some minutes, because the map of a key
// space needs that time. `PICTURES=stream,ring tests/clients/run console_pictures` makes only these.
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");
const lib = require("@aws-sdk/lib-dynamodb");
const sharp = require("sharp");
const {
  ROOT, UNREACHABLE, createTable, documentsOf, end, migrateShop, put, startPipelines, startShop, twin, until, withBrowser,
} = require("./console_projects.cjs");

const FOLDER = path.join(ROOT, "docs/images");
const WIDTH = 1120;
const BYTES_MAX = 72 * 1024;
const COLOURS = 32;
// How long the load of Partitions is sampled before its picture, in seconds; a sample takes 15.
const LOAD_SECONDS = 150;

const wanted = process.env.PICTURES?.split(",");

// Makes the picture of a page, at most `height` high. `prepare` changes the page before.
async function picture(browser, base, name, address, height, prepare = async () => {}) {
  if (wanted && !wanted.includes(name)) return;
  const page = await browser.newPage();
  await page.setViewport({ width: WIDTH, height: 600 });
  // A busy store may answer too late for the clock in the head.
  await until(`the clock of ${address}`, 60, async () => {
    await page.goto(base + address, { waitUntil: "load" });
    return page.$("[data-figure=clock]");
  });
  assert.equal(await page.$("p.error"), null, `${address} shows an error`);
  await prepare(page);
  const whole = await page.evaluate(() => Math.ceil(document.body.getBoundingClientRect().height));
  const shot = await page.screenshot({ clip: { x: 0, y: 0, width: WIDTH, height: Math.min(whole, height) }, captureBeyondViewport: true });
  const file = path.join(FOLDER, `console-${name}.png`);
  await sharp(shot).png({ palette: true, colours: COLOURS, effort: 10 }).toFile(file);
  const { size } = fs.statSync(file);
  assert.ok(size <= BYTES_MAX, `${file} has ${size} bytes`);
  console.log(`${path.relative(ROOT, file)} ${size} bytes`);
  await page.close();
}

// Writes to one key much more than to the others, while an open page samples the load.
async function load(base, running) {
  await createTable(running, "sensors", "id");
  const documents = documentsOf(running);
  const ends = Date.now() + LOAD_SECONDS * 1000;
  while (Date.now() < ends) {
    const names = Array.from({ length: 30 }, (_, number) => (number < 10 ? "sensor-7" : `sensor-${Math.floor(Math.random() * 500)}`));
    await Promise.all(names.map((id) => documents.send(new lib.PutCommand({ TableName: "sensors", Item: { id, at: Date.now() } }))));
    await documents.send(new lib.ScanCommand({ TableName: "sensors", Limit: 100 }));
    await twin(base, "/partitions/sensors.json");
    await sleep(1000);
  }
}

async function shop(browser, folder) {
  const small = folder("shop");
  const started = await startShop(small);
  const { running } = started;
  const base = running.console;
  const take = (...page) => picture(browser, base, ...page);
  await migrateShop(small, running);
  const { records } = await twin(base, "/stream.json?table=orders");
  const lost = records.find((record) => record.keys.id.S === UNREACHABLE);
  await take("pipelines", "/pipelines", 985);
  await take("stream", "/stream?table=orders", 600);
  await take("record", `/stream/${lost.sequence}?table=orders`, 900);
  await take("filter", "/stream/filter?table=orders&mapping=ThankOrders", 700);
  await take("tables", "/tables", 700);
  await take("table", "/tables/orders?index=by-customer&pk=ada&filter=state&filter_value=PAID", 900, (page) => page.click("#code-cli summary"));
  await take("item", `/tables/orders/item?key=${encodeURIComponent('{"id":{"S":"A-1003"}}')}`, 900);
  await take("migrations", "/migrations", 500);
  await until("the streams of the migration to be read", 60, async () => (await twin(base, "/migrations/shop.json")).cutover.answer !== "unknown");
  await take("migration", "/migrations/shop", 985);
  await take("ring", "/ring", 800);
  if (!wanted || wanted.includes("partitions")) await load(base, running);
  await take("partitions", "/partitions/sensors", 900);
  await end(started);
}

async function pipelines(browser, folder) {
  const started = await startPipelines(folder("pipelines"));
  const { running } = started;
  const base = running.console;
  const take = (...page) => picture(browser, base, ...page);
  await take("archive", `/archive?table=movies&do=restore&where=${encodeURIComponent("title = Metropolis")}`, 800);
  const key = encodeURIComponent('{"year":2013,"title":"Rush"}');
  await take("versions", `/versions?table=movies&key=${key}&from=1&to=2`, 800);
  await put(running, "votes", { slot: "poll-2#0", votes: 40 });
  await put(running, "votes", { slot: "poll-2#1", votes: 2 });
  await until("the second total", 30, async () => (await twin(base, "/counters.json")).counters.some((it) => it.total === "42"));
  await take("counters", "/counters", 700);
  await take("copies", "/copies", 600);
  await end(started);
}

async function main() {
  await withBrowser(async (browser, folder) => {
    await shop(browser, folder);
    await pipelines(browser, folder);
  });
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
