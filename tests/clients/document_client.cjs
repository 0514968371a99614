// The JavaScript SDK's document client: values, paginators, waiters, transactions, errors.
const assert = require("node:assert/strict");
const { DynamoDBClient, CreateTableCommand, DeleteTableCommand, ConditionalCheckFailedException,
  TransactionCanceledException, waitUntilTableExists, waitUntilTableNotExists, paginateListTables } =
  require("@aws-sdk/client-dynamodb");
const lib = require("@aws-sdk/lib-dynamodb");

async function main() {
  const client = new DynamoDBClient({});
  const documents = lib.DynamoDBDocumentClient.from(client, {
    marshallOptions: { removeUndefinedValues: true, convertClassInstanceToMap: true },
    unmarshallOptions: { wrapNumbers: false },
  });
  const TableName = "sessions";
  await client.send(new CreateTableCommand({
    TableName, BillingMode: "PAY_PER_REQUEST",
    AttributeDefinitions: [
      { AttributeName: "user", AttributeType: "S" }, { AttributeName: "started", AttributeType: "N" },
      { AttributeName: "device", AttributeType: "B" }],
    KeySchema: [{ AttributeName: "user", KeyType: "HASH" }, { AttributeName: "started", KeyType: "RANGE" }],
    GlobalSecondaryIndexes: [{ IndexName: "by-device", KeySchema: [{ AttributeName: "device", KeyType: "HASH" }],
      Projection: { ProjectionType: "INCLUDE", NonKeyAttributes: ["os"] } }],
  }));
  await waitUntilTableExists({ client, maxWaitTime: 60 }, { TableName });

  const whole = { user: "u", started: 1, device: new Uint8Array([1, 2]), os: "linux", tags: new Set(["a", "b"]),
    numbers: new Set([1, 2.5]), deep: { list: [1, "x", null, true, { y: [] }] }, empty: "", gone: undefined };
  await documents.send(new lib.PutCommand({ TableName, Item: whole }));
  const { Item } = await documents.send(new lib.GetCommand({ TableName, Key: { user: "u", started: 1 }, ConsistentRead: true }));
  delete whole.gone;
  assert.deepEqual(Item, whole);

  for (let start = 0; start < 100; start += 25) {
    const puts = Array.from({ length: 25 }, (_, n) => ({ PutRequest: { Item: {
      user: `u${(start + n) % 2}`, started: start + n, device: new Uint8Array([(start + n) % 3]), os: "os", note: "n" } } }));
    const { UnprocessedItems } = await documents.send(new lib.BatchWriteCommand({ RequestItems: { [TableName]: puts } }));
    assert.deepEqual(UnprocessedItems, {});
  }
  const started = [];
  for await (const page of lib.paginateQuery({ client: documents, pageSize: 7 }, {
    TableName, KeyConditionExpression: "#u = :u AND started >= :s", ExpressionAttributeNames: { "#u": "user" },
    ExpressionAttributeValues: { ":u": "u1", ":s": 50 } })) started.push(...page.Items.map((item) => item.started));
  assert.deepEqual(started, Array.from({ length: 25 }, (_, n) => 51 + 2 * n));
  let scanned = 0;
  for await (const page of lib.paginateScan({ client: documents, pageSize: 9 }, { TableName, IndexName: "by-device" })) {
    scanned += page.Items.length;
    assert.ok(page.Items.every((item) => !("note" in item)));
  }
  assert.equal(scanned, 101);
  const names = [];
  for await (const page of paginateListTables({ client, pageSize: 1 }, {})) names.push(...page.TableNames);
  assert.ok(names.includes(TableName));

  const updated = await documents.send(new lib.UpdateCommand({ TableName, Key: { user: "u", started: 1 },
    UpdateExpression: "SET deep.#l[1] = :x, #c = if_not_exists(#c, :zero) + :one ADD tags :t REMOVE #e",
    ExpressionAttributeNames: { "#l": "list", "#c": "count", "#e": "empty" },
    ExpressionAttributeValues: { ":x": "changed", ":zero": 0, ":one": 1, ":t": new Set(["c"]) }, ReturnValues: "ALL_NEW" }));
  assert.deepEqual(updated.Attributes.deep.list, [1, "changed", null, true, { y: [] }]);
  assert.deepEqual([updated.Attributes.count, updated.Attributes.tags, "empty" in updated.Attributes], [1, new Set(["a", "b", "c"]), false]);

  await assert.rejects(documents.send(new lib.DeleteCommand({ TableName, Key: { user: "u", started: 1 },
    ConditionExpression: "attribute_not_exists(os)", ReturnValuesOnConditionCheckFailure: "ALL_OLD" })), (error) => {
    assert.ok(error instanceof ConditionalCheckFailedException);
    assert.equal(error.Item.os.S, "linux");
    return true;
  });
  await assert.rejects(documents.send(new lib.TransactWriteCommand({ TransactItems: [
    { Put: { TableName, Item: { user: "t", started: 0 } } },
    { Update: { TableName, Key: { user: "t", started: 1 }, UpdateExpression: "SET a = b" } }] })), (error) => {
    assert.ok(error instanceof TransactionCanceledException);
    assert.deepEqual(error.CancellationReasons.map((reason) => reason.Code), ["None", "ValidationError"]);
    return true;
  });
  const got = await documents.send(new lib.TransactGetCommand({ TransactItems: [
    { Get: { TableName, Key: { user: "t", started: 0 } } }, { Get: { TableName, Key: { user: "u0", started: 0 } } }] }));
  assert.deepEqual(got.Responses.map((response) => response.Item?.os), [undefined, "os"]);
  await client.send(new DeleteTableCommand({ TableName }));
  await waitUntilTableNotExists({ client, maxWaitTime: 60 }, { TableName });
  console.log("JavaScript SDK: values, paginators, waiters, transactions and errors agree");
}

main().catch((error) => { console.error(error); process.exit(1); });
