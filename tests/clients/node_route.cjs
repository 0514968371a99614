// Tries examples/migrations/route.mjs against the store: each case of route_cases.json, and a switch.

const assert = require("node:assert/strict");
const { randomUUID } = require("node:crypto");
const path = require("node:path");
const { DynamoDB } = require("@aws-sdk/client-dynamodb");
const cases = require("./route_cases.json");

const keys = cases.keys;
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
    const inserted = await dynamodb.putItem(insert(table, item, keys)).then(
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
  console.log(`route.mjs: ${count} cases and a switch`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
