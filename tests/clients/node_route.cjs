// Tries examples/migrations/route.mjs against the store: each case of route_cases.json, and a switch. Reads of the
// route that fail or are slow come from a mock client.

const assert = require("node:assert/strict");
const { randomUUID } = require("node:crypto");
const path = require("node:path");
const { DynamoDB } = require("@aws-sdk/client-dynamodb");
const cases = require("./route_cases.json");

const { keys, always } = cases;
const dynamodb = new DynamoDB({ endpoint: process.env.AWS_ENDPOINT_URL_DYNAMODB });
const [control, table] = ["control", "parts"].map((name) => `${name}-${randomUUID().slice(0, 8)}`);
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function create(TableName, ...names) {
  await dynamodb.createTable({
    TableName,
    BillingMode: "PAY_PER_REQUEST",
    AttributeDefinitions: names.map((AttributeName) => ({ AttributeName, AttributeType: "S" })),
    KeySchema: names.map((AttributeName, place) => ({ AttributeName, KeyType: ["HASH", "RANGE"][place] })),
  });
}

async function setRoute(entry) {
  const key = { migration: { S: "move" }, entry: { S: "ROUTE" } };
  await dynamodb.putItem({ TableName: control, Item: { ...key, ...entry } });
}

/** Answers each read of a route with the next [milliseconds, side], and from then on with the last; null fails. */
function answers(...list) {
  return {
    async getItem() {
      const [milliseconds, side] = list.length > 1 ? list.shift() : list[0];
      await pause(milliseconds);
      if (side === null) throw new Error("no answer");
      return { Item: { read: { S: side }, write: { S: side } } };
    },
  };
}

async function tryReads(Route) {
  // After a read that fails, the old route is not used again.
  const failing = answers([0, "source"], [0, null], [0, null], [0, "target"]);
  let route = new Route(failing, "move", { seconds: 0.2 });
  assert.equal(await route.write(), "source");
  await pause(300);
  await assert.rejects(route.write(), /no answer/);
  await assert.rejects(route.write(), /no answer/);
  assert.equal(await route.write(), "target");
  // While a read is slow, others do not use the old route; its answer is too old when it comes.
  route = new Route(answers([0, "source"], [600, "source"], [0, "target"]), "move", { seconds: 0.2 });
  assert.equal(await route.write(), "source");
  await pause(300);
  let isSlow = true;
  const slow = route.write().finally(() => (isSlow = false));
  await pause(100);
  assert.equal(await route.write(), "target");
  assert.ok(isSlow, "the read is still going on");
  assert.equal(await slow, "target");
  assert.equal(await route.write(), "target");
  assert.equal(new Route(null, "move").seconds, 1, "half of the default of gate_seconds");
}

async function main() {
  const { Route, insert, visible } = await import(path.join(__dirname, "../../examples/migrations/route.mjs"));
  await create(control, "migration", "entry");
  await create(table, ...keys);
  let count = 0;
  for (const each of cases.inserts) {
    count += 1;
    const key = { [keys[0]]: { S: `case-${count}` }, [keys[1]]: { S: "a" } };
    if (each.there) await dynamodb.putItem({ TableName: table, Item: { ...key, ...each.there } });
    const item = { ...key, ...each.item };
    const inserted = await dynamodb.putItem(insert(table, item, keys, always)).then(
      () => true,
      (error) => {
        assert.equal(error.name, "ConditionalCheckFailedException", each.why);
        return false;
      },
    );
    assert.equal(inserted, each.inserted, each.why);
    const there = (await dynamodb.getItem({ TableName: table, Key: key, ConsistentRead: true })).Item;
    assert.deepEqual(there, inserted ? item : { ...key, ...each.there }, each.why);
  }
  for (const [each, name] of [...cases.refused.map((each) => [each, always]), [{ item: {} }, keys[0]]]) {
    count += 1;
    const item = { [keys[0]]: { S: "p" }, [keys[1]]: { S: "s" }, ...each.item };
    assert.throws(() => insert(table, item, keys, name), new RegExp(`\`${name}\` must be`), each.why);
  }
  // The keys of another table would make an insert that overwrites.
  count += 1;
  const order = { orderID: { S: "1" }, [always]: { N: "1" } };
  assert.throws(() => insert("orders", order, keys, always), new RegExp(`\`${keys[0]}\` must be .* of \`orders\``));
  for (const each of cases.visible) {
    count += 1;
    const key = { [keys[0]]: { S: "p" }, [keys[1]]: { S: "s" } };
    const expected = each.seen && { ...key, ...each.seen };
    assert.deepEqual(visible({ ...key, ...each.item }, keys), expected, JSON.stringify(each));
  }
  for (const each of cases.routes) {
    count += 1;
    if (each.entry) await setRoute(each.entry);
    const route = new Route(dynamodb, "move", { control });
    assert.deepEqual([await route.read(), await route.write()], [each.read, each.write]);
  }
  // A route is kept for a while, and writers wait for the end of a switch.
  await setRoute({ read: { S: "source" }, write: { S: "source" } });
  const route = new Route(dynamodb, "move", { control, seconds: 0.5 });
  assert.equal(await route.write(), "source");
  await setRoute({ read: { S: "source" }, write: { S: "none" } });
  assert.equal(await route.write(), "source", "it is asked for again later");
  await pause(600);
  const began = performance.now();
  const opened = pause(1000).then(() => setRoute({ read: { S: "target" }, write: { S: "target" } }));
  assert.equal(await route.write(), "target");
  assert.ok(performance.now() - began > 900, "it waited for the switch");
  await opened;
  await tryReads(Route);
  console.log(`route.mjs: ${count} cases, a switch, and reads that fail or are slow`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
