// Tests with `node --test` and the fixtures of `npm install weir-dynamodb`.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { CreateTableCommand, DynamoDB } from "@aws-sdk/client-dynamodb";
import { startStore, startUp } from "weir-dynamodb/testing";

/** A client of a fixture, also where the environment names other endpoints and keys. */
function clientOf({ environment }) {
  return new DynamoDB({
    endpoint: environment.AWS_ENDPOINT_URL_DYNAMODB,
    region: environment.AWS_REGION,
    credentials: { accessKeyId: "local", secretAccessKey: "local" },
  });
}

const SESSIONS = {
  TableName: "sessions",
  BillingMode: "PAY_PER_REQUEST",
  AttributeDefinitions: [{ AttributeName: "id", AttributeType: "S" }],
  KeySchema: [{ AttributeName: "id", KeyType: "HASH" }],
};

let store;
before(async () => (store = await startStore()));
afterEach(() => store.empty());
after(() => store.stop());

test("a session expires after a day", async () => {
  const dynamodb = clientOf(store);
  await dynamodb.send(new CreateTableCommand(SESSIONS));
  await dynamodb.updateTimeToLive({
    TableName: "sessions",
    TimeToLiveSpecification: { Enabled: true, AttributeName: "until" },
  });
  const until = Math.floor((await store.clock.now()).getTime() / 1000) + 24 * 3600;
  const Item = { id: { S: "ada" }, until: { N: `${until}` } };
  await dynamodb.putItem({ TableName: "sessions", Item });
  const found = async () => (await dynamodb.getItem({ TableName: "sessions", Key: { id: Item.id } })).Item;
  await store.clock.advance(23 * 3600_000);
  await store.clock.sweep();
  assert.deepEqual(await found(), Item);
  await store.clock.advance(2 * 3600_000);
  await store.clock.sweep(); // counts only the items that the store has not deleted by itself
  assert.equal(await found(), undefined);
});

test("every test begins without tables", async () => {
  assert.deepEqual((await clientOf(store).listTables({})).TableNames, []);
});

test("votes become a total", async (context) => {
  const up = await startUp({ template: new URL("template.yaml", import.meta.url) });
  context.after(() => up.stop());
  const dynamodb = clientOf(up);
  for (const slot of [0, 1, 2, 3]) {
    const Item = { slot: { S: `poll#${slot}` }, votes: { N: "10" } };
    await dynamodb.putItem({ TableName: "votes", Item });
  }
  await up.settle();
  const { Item } = await dynamodb.getItem({ TableName: "totals", Key: { counter: { S: "poll" } } });
  assert.equal(Item.total.N, "40");
});
