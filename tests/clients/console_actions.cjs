// Tests every form of the console in a headless Chromium, filled and pressed as by a person: forms that read (search,
// query builder, filter tester, previews) and buttons that change something, each with its effect in the store. Then a
// wrong token, a concurrent change by another client, only the keyboard, and no JavaScript.
const assert = require("node:assert/strict");
const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const lib = require("@aws-sdk/lib-dynamodb");
const {
  ORDERS, ROOT, UNREACHABLE, createTable, documentsOf, end, migrate, put, startPipelines, startShop, textOf, twin, until, withBrowser,
} = require("./console_projects.cjs");

// A migration that is slow enough to be paused.
const PARCELS = 60;
const PLAN = `migration: parcels
kind: restructure
from:
  - table: parcels
    items:
      - to: parcels-2
        transform: '. + {kind: "parcel"}'
`;

// The actions of docs/console.md: a pattern of the path of each.
function documentedActions() {
  const text = fs.readFileSync(path.join(ROOT, "docs/console.md"), "utf8");
  const [, table] = text.split("| Path | Fields |");
  return table.split("\n\n")[0].split("\n").slice(2).flatMap((line) => [...line.split("|")[1].matchAll(/`(\/[^`]*)`/g)].map(([, at]) => at));
}
const ACTIONS = documentedActions().map((at) => ({ at, pattern: new RegExp(`^${at.replace(/[A-Z]+/g, "[^/]+")}$`), isPressed: false }));

// A page that notes which actions were carried out.
async function open(browser, address) {
  const page = await browser.newPage();
  page.on("response", (response) => {
    const { pathname } = new URL(response.url());
    if (response.request().method() !== "POST") return;
    const known = ACTIONS.find((it) => it.pattern.test(pathname));
    assert.ok(known, `docs/console.md has no action ${pathname}`);
    if (response.status() === 303) known.isPressed = true;
  });
  await page.goto(address, { waitUntil: "load" });
  return page;
}

// Fills the fields of the form that leads to `action`, and presses its button, the one with `label` if there are several.
// Resolves to the text of the next page. A page that keeps itself up to date may replace the button before the click.
async function press(page, action, fields = {}, label = undefined) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await pressOnce(page, action, fields, label);
    } catch (error) {
      if (tries === 5 || !/not clickable|detached/.test(error.message)) throw error;
    }
  }
}

async function pressOnce(page, action, fields, label) {
  const forms = await page.$$(`form[action="${action}"]`);
  const isIt = await Promise.all(forms.map((form) => form.evaluate((it, names, label) =>
    names.every((name) => it.elements[name]) && (!label || it.querySelector("button").innerText === label), Object.keys(fields), label)));
  const form = forms[isIt.indexOf(true)];
  assert.ok(form, `no form to ${action} with ${label ?? Object.keys(fields)} on ${page.url()}`);
  for (const [name, value] of Object.entries(fields)) {
    const field = await form.$(`[name="${name}"]`);
    const kind = await field.evaluate((it) => (it.tagName === "SELECT" ? "select" : it.type));
    if (kind === "select") await field.select(value);
    else {
      await field.focus();
      await field.evaluate((it) => it.select());
      await page.keyboard.press("Delete");
      await field.type(value);
    }
  }
  const button = await form.$("button");
  await Promise.all([page.waitForNavigation({ waitUntil: "load" }), button.click()]);
  return textOf(page);
}

const noticeOf = (page) => page.$eval("p.notice", (notice) => notice.innerText);

// Presses a button, and checks the sentence that reports its effect.
async function act(page, action, expected, fields, label) {
  const text = await press(page, action, fields, label);
  assert.match(await noticeOf(page).catch(() => text), expected, `${action}: ${text.slice(0, 500)}`);
}

async function clockAndChaos(browser, base) {
  const page = await open(browser, `${base}/pipelines`);
  const header = () => page.$eval("header", (it) => it.innerText);
  assert.match(await header(), /Chaos on/);
  await act(page, "/chaos", /chaos is off/, {}, "Turn off");
  assert.match(await header(), /Chaos off/);
  await act(page, "/chaos", /chaos is on/, {}, "Turn on");
  assert.match(await header(), /Chaos on/);
  await act(page, "/chaos", /chaos is off/, {}, "Turn off");
  await act(page, "/clock/advance", /the clock shows/, {}, "+1 h");
  await act(page, "/clock/advance", /the clock shows/, {}, "+1 day");
  await act(page, "/clock/sweep", /0 expired items/);
  await page.close();
}

async function streams(browser, base, shop) {
  const page = await open(browser, `${base}/stream?table=orders`);
  // Which record was filtered, and why.
  let text = await press(page, "/stream", { table: "orders", key: '{"id":"A-1001"}', limit: "50" });
  assert.match(text, /1 of 6 records/);
  assert.match(text, /filtered out Ship: .*dynamodb\.NewImage\.state\.S requires "PAID", found "OPEN"/);
  text = await press(page, "/stream", { key: "{" });
  assert.match(text, /key: .*write instead/);
  await page.goto(`${base}/stream/filter`, { waitUntil: "load" });
  text = await press(page, "/stream/filter", { table: "orders", pattern: '{"dynamodb":{"NewImage":{"state":{"S":["PAID"]}}}}' });
  assert.match(text, /3 of 6 records match/);
  assert.match(text, /requires "PAID", found "CANCELLED"/);
  text = await press(page, "/stream/filter", { pattern: '{"eventName":"INSERT"}' }).catch((error) => error.message);
  assert.match(text, /write instead/);
  // Two redrives: one of a function that still fails, and one after the order got an address.
  await page.goto(`${base}/stream?table=orders`, { waitUntil: "load" });
  await act(page, "/stream/redrive", /`Notify\w*` was invoked again with 1 record: failed/);
  const notices = await page.$$eval("ul.verdicts .bad", (all) => all.map((it) => it.innerText));
  assert.deepEqual(notices.filter((it) => it !== "blocked"), ["discarded"]);
  // The records of the batch that Bill retries have the word and the colour of Pipelines.
  assert.ok(notices.includes("blocked"), notices);
  // A blocked mapping, and the open page's message that it is no longer blocked.
  await page.goto(`${base}/pipelines`, { waitUntil: "load" });
  assert.match(await textOf(page), /blocked Bill/i);
  shop.openTheBank();
  await until("the open page to show that Bill continues", 120, async () => !/blocked Bill/i.test(await textOf(page)));
  // New records appear on an open page.
  await page.goto(`${base}/stream?table=orders`, { waitUntil: "load" });
  await put(shop.running, "orders", { id: "A-2000", customer: "eve", state: "OPEN", total: 1, email: "eve@shop.example", placed: "2026-11-28" });
  await until("the new record on the open page", 30, async () => /id = S A-2000/.test(await textOf(page)));
  await page.close();
}

// The code of a request returns the items that the page shows. The program of another language finds the store by its
// environment variables.
function runCode(folder, running, name, code) {
  const env = { ...process.env, AWS_ENDPOINT_URL_DYNAMODB: running.dynamodb };
  const tool = process.env.TOOLS ? path.join(process.env.TOOLS, "python/bin") : undefined;
  const program = (found) => (tool ? path.join(tool, found) : found);
  const file = path.join(folder, { cli: "request.sh", python: "request.py", javascript: "request.mjs" }[name]);
  fs.writeFileSync(file, name === "cli" && tool ? code.replace(/^aws /, `${program("aws")} `) : code);
  // Modules find their packages beside themselves only.
  if (name === "javascript" && !fs.existsSync(path.join(folder, "node_modules"))) fs.symlinkSync(process.env.NODE_PATH.split(":")[0], path.join(folder, "node_modules"));
  const command = { cli: ["sh"], python: [program("python3")], javascript: [process.execPath, "--no-warnings"] }[name];
  const done = spawnSync(command[0], [...command.slice(1), file], { env, encoding: "utf8", cwd: folder });
  assert.equal(done.status, 0, `${name}: ${done.stderr}\n${code}`);
  return done.stdout;
}

async function tables(browser, base, folder, running) {
  const page = await open(browser, `${base}/tables/orders`);
  let text = await press(page, "/tables/orders", { index: "by-customer" });
  assert.match(text, /7 items returned/);
  text = await press(page, "/tables/orders", { pk: "ada", sk_op: ">=", sk: "2026-11-21", filter: "state", filter_value: "PAID", order: "desc" });
  assert.match(text, /2 items returned, 2 read, [\d.]+ read capacity unit/);
  const rows = await page.$$eval("main table tbody tr", (all) => all.map((row) => row.innerText));
  assert.deepEqual(rows.map((row) => /A-\d+/.exec(row)[0]), ["A-1006", "A-1003"]);
  text = await press(page, "/tables/orders", { filter: "" , filter_value: "" });
  text = await press(page, "/tables/orders", { filter: "total", filter_type: "N", filter_op: ">", filter_value: "many" });
  assert.match(text, /`many` is not a number/);
  text = await press(page, "/tables/orders", { filter_value: "1000" });
  assert.match(text, /1 item returned/);
  // The same request as code, run.
  const { asked } = await twin(base, new URL(page.url()).pathname + ".json" + new URL(page.url()).search);
  for (const [name, heading] of [["cli", "AWS CLI"], ["python", "Python (boto3)"], ["javascript", "JavaScript (SDK v3)"]]) {
    const [details] = await page.$$(`#code-${name}`);
    await (await details.$("summary")).click();
    assert.equal(await details.$eval("summary", (it) => it.innerText), heading);
    const shown = await details.$eval("pre", (it) => it.innerText);
    assert.equal(shown.trim(), asked.code[name].trim());
    const said = runCode(folder, running, name, shown);
    assert.ok(said.includes("A-1006") && !said.includes("A-1003"), `${name}: ${said}`);
  }
  // Export saves a file.
  const devtools = await page.createCDPSession();
  await devtools.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: folder });
  for (const [label, file, part] of [["Export as DynamoDB JSON", "orders.jsonl", '"id":{"S":"A-1006"}'], ["Export as CSV", "orders.csv", "A-1006"]]) {
    await (await page.$(`a ::-p-text(${label})`)).click();
    const saved = path.join(folder, file);
    await until(file, 30, () => fs.existsSync(saved) && fs.readFileSync(saved, "utf8").includes(part));
  }
  await page.close();
}

async function items(browser, base, running) {
  const address = `${base}/tables/orders/item?key=${encodeURIComponent('{"id":{"S":"A-1001"}}')}`;
  const read = async (id) => (await documentsOf(running).send(new lib.GetCommand({ TableName: "orders", Key: { id } }))).Item;
  const page = await open(browser, address);
  const shown = await page.$eval("#item", (it) => it.value);
  await act(page, "/tables/orders/item/save", /saved 1 attribute/, { item: shown.replace('"OPEN"', '"PAID"') });
  assert.equal((await read("A-1001")).state, "PAID");
  // Another client changes the item while this page is open.
  const edited = (await page.$eval("#item", (it) => it.value)).replace('"PAID"', '"SENT"');
  await put(running, "orders", { ...(await read("A-1001")), note: "from another client" });
  assert.match(await press(page, "/tables/orders/item/save", { item: edited }), /Conflict with another change/);
  assert.deepEqual([(await read("A-1001")).state, (await read("A-1001")).note], ["PAID", "from another client"]);
  // Wrong JSON.
  await page.goto(address, { waitUntil: "load" });
  assert.match(await press(page, "/tables/orders/item/save", { item: '{"id":{"S":"A-1001"},\n"total":{"N":1}}' }), /line 2: `total`.*write instead: {"N":"1"}/);
  await page.goto(`${base}/tables/orders/item`, { waitUntil: "load" });
  const fresh = '{"id":{"S":"<b>new</b>"},"customer":{"S":"ada"},"placed":{"S":"2026-11-28"}}';
  await act(page, "/tables/orders/item/create", /created/, { item: fresh });
  assert.equal((await read("<b>new</b>")).customer, "ada");
  await page.goto(`${base}/tables/orders/item`, { waitUntil: "load" });
  assert.match(await press(page, "/tables/orders/item/create", { item: fresh }), /Conflict with another change/);
  await page.goto(`${base}/tables/orders/item?key=${encodeURIComponent('{"id":{"S":"<b>new</b>"}}')}`, { waitUntil: "load" });
  await act(page, "/tables/orders/item/delete", /deleted/);
  assert.equal(await read("<b>new</b>"), undefined);
  await page.close();
}

async function migrations(browser, base, folder, running) {
  for (const table of ["parcels", "parcels-2"]) await createTable(running, table, "id");
  for (let number = 0; number < PARCELS; number += 1) await put(running, "parcels", { id: `p-${number}`, weight: number });
  await migrate(folder, "parcels", PLAN, ["--rate", "2"]);
  await until("the backfill", 120, async () => (await twin(base, "/migrations/parcels.json")).phase === "copying", path.join(folder, "parcels.log"));
  const page = await open(browser, `${base}/migrations/parcels`);
  assert.match(await textOf(page), /No: /);
  const at = (verb) => `/migrations/parcels/${verb}`;
  await act(page, at("pause"), /`parcels` is paused/);
  assert.equal((await twin(base, "/migrations/parcels.json")).paused, true);
  await act(page, at("throttle"), /50/, { rate: "50" });
  assert.equal((await twin(base, "/migrations/parcels.json")).backfill.items_per_second_allowed, 50);
  await act(page, at("resume"), /resume/);
  // The open page follows the backfill to its end.
  await until("the open page to show the end of the backfill", 120, async () => /● tailing/.test(await textOf(page)), path.join(folder, "parcels.log"));
  await page.close();
}

async function partitions(browser, base) {
  const page = await open(browser, `${base}/partitions/orders`);
  const count = async () => (await twin(base, "/partitions/orders.json")).partitions.length;
  const before = await count();
  await act(page, "/partitions/orders/split", /split/);
  await until("the split", 30, async () => (await count()) === before + 1);
  await page.close();
}

// A wrong token changes nothing, and the page says what to do; without a script, buttons work as well.
async function tokenAndScript(browser, base) {
  const clock = async (page) => page.$eval('[data-figure="clock"]', (it) => it.innerText);
  const page = await open(browser, `${base}/tables`);
  await until("the clock", 30, async () => (await page.$('[data-figure="clock"]')) ?? (await page.reload()) === undefined);
  const token = await page.$eval('form[action="/clock/advance"] [name="token"]', (it) => it.value);
  for (const wrong of ["", "wrong", `${token}0`, "0".repeat(token.length)]) {
    await page.goto(`${base}/tables`, { waitUntil: "load" });
    const before = await clock(page);
    await page.$$eval('[name="token"]', (all, value) => { for (const it of all) it.value = value; }, wrong);
    assert.match(await press(page, "/clock/advance", {}, "+1 day"), /refused: .*reload the page and press the button again/);
    assert.equal((await clock(page)).slice(0, 10), before.slice(0, 10), `the token "${wrong}"`);
  }
  await page.setJavaScriptEnabled(false);
  await page.goto(`${base}/stream`, { waitUntil: "load" });
  assert.match(await press(page, "/stream", { table: "orders", key: JSON.stringify({ id: UNREACHABLE }) }), /1 of \d+ records/);
  // A day later, the stream has no record of before.
  await page.goto(`${base}/tables`, { waitUntil: "load" });
  const before = await clock(page);
  await act(page, "/clock/advance", /the clock shows/, {}, "+1 day");
  assert.notEqual((await clock(page)).slice(0, 10), before.slice(0, 10));
  await page.close();
}

// From the first page to the clause of a filter without a mouse.
async function keyboard(browser, base) {
  const page = await open(browser, `${base}/pipelines`);
  const focused = () => page.evaluate(() => document.activeElement.innerText?.trim());
  const tabTo = async (text) => {
    for (let presses = 0; presses < 60; presses += 1) {
      await page.keyboard.press("Tab");
      if ((await focused()) === text) {
        const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
        assert.notEqual(outline, "none", `the focus on ${text} is visible`);
        return;
      }
    }
    assert.fail(`no way to ${text} with the Tab key`);
  };
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "Skip to content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await tabTo("Test its filter");
  await Promise.all([page.waitForNavigation({ waitUntil: "load" }), page.keyboard.press("Enter")]);
  assert.match(await textOf(page), /0 of \d+ records match/);
  await page.close();
}

async function archive(browser, base, running) {
  const page = await open(browser, `${base}/archive`);
  const titles = async () => (await documentsOf(running).send(new lib.ScanCommand({ TableName: "movies" }))).Items.map((it) => it.title).sort();
  assert.deepEqual(await titles(), ["Rush"]);
  const rows = async () => (await twin(base, "/archive.json")).days.reduce((sum, day) => sum + day.rows, 0);
  assert.equal(await rows(), 4);
  assert.match(await press(page, "/archive", { table: "movies" }), /movies/);
  const preview = async (fields) => {
    await page.goto(`${base}/archive`, { waitUntil: "load" });
    return press(page, "/archive", fields);
  };
  assert.match(await preview({ where: "" }), /no rows are selected/);
  assert.match(await preview({ where: "title = Metropolis" }), /Preview: .*1 item/);
  assert.deepEqual(await titles(), ["Rush"], "a preview writes nothing");
  await press(page, "/archive/restore");
  await until("the restored item", 60, async () => (await titles()).join() === "Metropolis,Rush");
  assert.match(await preview({ begins_with: "title=Nosf" }), /this would erase 1 row of `movies`/);
  await press(page, "/archive/erase", { confirm: "movie" });
  assert.equal(await rows(), 4, "the table's name was misspelt");
  await preview({ begins_with: "title=Nosf" });
  await press(page, "/archive/erase", { confirm: "movies" });
  await until("the erasure", 60, async () => (await rows()) === 3);
  await until("the receipt on the open page", 30, async () => /receipt/.test(await textOf(page)));
  await page.close();
}

async function histories(browser, base) {
  const page = await open(browser, `${base}/versions`);
  let text = await press(page, "/versions", { table: "movies", key: '{"year":2013,"title":"Rush"}' });
  assert.match(text, /2013/);
  text = await press(page, "/versions", { from: "1", to: "2" });
  assert.match(text, /compared with version/);
  assert.match(text, /rating/);
  await page.goto(`${base}/counters`, { waitUntil: "load" });
  assert.match(await press(page, "/counters", { counter: "poll-1" }), /15/);
  await page.close();
}

async function main() {
  await withBrowser(async (browser, folder) => {
    const small = folder("shop");
    // With faults, the counts of the orders would not be certain: they are off before the first order.
    const shop = await startShop(small, ["--chaos", "7"], (address) => clockAndChaos(browser, address));
    const { running } = shop;
    const base = running.console;
    assert.equal(ORDERS.length, 6);
    await streams(browser, base, shop);
    await tables(browser, base, small, running);
    await items(browser, base, running);
    await partitions(browser, base);
    await migrations(browser, base, small, running);
    await keyboard(browser, base);
    await tokenAndScript(browser, base);
    await end(shop);
    const whole = await startPipelines(folder("pipelines"));
    await archive(browser, whole.running.console, whole.running);
    await histories(browser, whole.running.console);
    await end(whole);
    assert.deepEqual(ACTIONS.filter((it) => !it.isPressed).map((it) => it.at), [], "documented actions that were not pressed");
    console.log(`console: ${ACTIONS.length} actions pressed in Chromium`);
  });
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
