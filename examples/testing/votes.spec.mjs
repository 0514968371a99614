// A test with vitest. With jest it is the same, but imports from "@jest/globals".
import { DynamoDB } from "@aws-sdk/client-dynamodb";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startUp } from "weir-dynamodb/testing";

let up;
beforeAll(async () => {
  up = await startUp({ template: new URL("template.yaml", import.meta.url) });
  // Code under test that creates a client without settings also finds the store.
  Object.assign(process.env, up.environment);
}, 600_000);
afterAll(() => up.stop());

test("a slot that loses its votes lowers the total", async () => {
  const dynamodb = new DynamoDB();
  const put = (votes) =>
    dynamodb.putItem({ TableName: "votes", Item: { slot: { S: "poll#0" }, votes: { N: votes } } });
  await put("10");
  await put("7");
  await up.settle();
  const { Item } = await dynamodb.getItem({ TableName: "totals", Key: { counter: { S: "poll" } } });
  expect(Item.total.N).toBe("7");
}, 60_000);
