// Tests of the handler, without AWS and without dependencies: `node --test`.

import assert from "node:assert/strict";
import { test } from "node:test";
import { handlerOf } from "./function/app.mjs";

let number = 0;

/** A record with a number of its own. */
function record() {
  number += 1;
  return {
    eventID: `event-${number}`,
    eventName: "INSERT",
    dynamodb: { Keys: { id: { S: "1" } }, SequenceNumber: String(number) },
  };
}

/** Runs a batch; gives what was processed, and what Lambda is to retry from. */
async function run(records, failing) {
  const processed = [];
  const handler = handlerOf(async (eventID) => {
    if (eventID === failing) throw new Error(eventID);
    processed.push(eventID);
  });
  const { batchItemFailures } = await handler({ Records: records });
  return { processed, failures: batchItemFailures.map((failure) => failure.itemIdentifier) };
}

test("every record is processed in order", async () => {
  const [a, b] = [record(), record()];
  assert.deepEqual(await run([a, b]), { processed: [a.eventID, b.eventID], failures: [] });
});

test("the first failure is where Lambda retries from", async () => {
  const [a, b, c] = [record(), record(), record()];
  const first = await run([a, b, c], b.eventID);
  assert.deepEqual(first, { processed: [a.eventID], failures: [b.dynamodb.SequenceNumber] });
  assert.deepEqual(await run([b, c]), { processed: [b.eventID, c.eventID], failures: [] });
});

test("a record that is delivered twice is processed once", async () => {
  const [a, b] = [record(), record()];
  await run([a]);
  assert.deepEqual(await run([a, b]), { processed: [b.eventID], failures: [] });
});
