// ElectroDB: two entities in one table, collections, patches, conditions, cursors, transactions.
const assert = require("node:assert/strict");
const { DynamoDBClient, CreateTableCommand, DeleteTableCommand } = require("@aws-sdk/client-dynamodb");
const { Entity, Service } = require("electrodb");

const table = "electro";
const client = new DynamoDBClient({});
const keys = [["pk", "sk"], ["gsi1pk", "gsi1sk"]];

const Employee = new Entity({
  model: { entity: "employee", version: "1", service: "staff" },
  attributes: {
    id: { type: "string", required: true }, team: { type: "string", required: true },
    salary: { type: "number", default: 0 }, skills: { type: "set", items: "string" },
    address: { type: "map", properties: { city: { type: "string" } } }, history: { type: "list", items: { type: "string" } },
  },
  indexes: {
    primary: { pk: { field: "pk", composite: ["id"] }, sk: { field: "sk", composite: [] } },
    members: { collection: "team", index: "gsi1", pk: { field: "gsi1pk", composite: ["team"] }, sk: { field: "gsi1sk", composite: ["id"] } },
  },
}, { client, table });
const Task = new Entity({
  model: { entity: "task", version: "1", service: "staff" },
  attributes: { id: { type: "string", required: true }, team: { type: "string", required: true }, points: { type: "number" } },
  indexes: {
    primary: { pk: { field: "pk", composite: ["id"] }, sk: { field: "sk", composite: [] } },
    work: { collection: "team", index: "gsi1", pk: { field: "gsi1pk", composite: ["team"] }, sk: { field: "gsi1sk", composite: ["points"] } },
  },
}, { client, table });
const Staff = new Service({ employee: Employee, task: Task }, { client, table });

async function main() {
  await client.send(new CreateTableCommand({
    TableName: table, BillingMode: "PAY_PER_REQUEST",
    AttributeDefinitions: keys.flat().map((AttributeName) => ({ AttributeName, AttributeType: "S" })),
    KeySchema: [{ AttributeName: "pk", KeyType: "HASH" }, { AttributeName: "sk", KeyType: "RANGE" }],
    GlobalSecondaryIndexes: [{ IndexName: "gsi1", Projection: { ProjectionType: "ALL" },
      KeySchema: [{ AttributeName: "gsi1pk", KeyType: "HASH" }, { AttributeName: "gsi1sk", KeyType: "RANGE" }] }],
  }));
  await Employee.put(Array.from({ length: 30 }, (_, n) => ({ id: `e${String(n).padStart(2, "0")}`, team: `t${n % 2}`, salary: n, skills: ["rust"] }))).go();
  await Task.create({ id: "job", team: "t1", points: 3 }).go();
  await assert.rejects(Task.create({ id: "job", team: "t1", points: 4 }).go(), /conditional request failed/);

  const collected = (await Staff.collections.team({ team: "t1" }).go({ pages: "all" })).data;
  assert.deepEqual([collected.employee.length, collected.task.length], [15, 1]);
  const paid = (await Employee.query.members({ team: "t0" }).where(({ salary }, { gt }) => gt(salary, 20)).go()).data;
  assert.deepEqual(paid.map((employee) => employee.salary), [22, 24, 26, 28]);
  const seen = [];
  let cursor = null;
  do {
    const page = await Employee.query.members({ team: "t0" }).go({ cursor, limit: 4 });
    seen.push(...page.data);
    cursor = page.cursor;
  } while (cursor !== null);
  assert.equal(seen.length, 15);

  const patched = (await Employee.patch({ id: "e01" }).set({ address: { city: "Bern" } }).add({ salary: 100, skills: ["go"] })
    .append({ history: ["moved"] }).go({ response: "all_new" })).data;
  assert.deepEqual([patched.salary, patched.address.city, patched.history], [101, "Bern", ["moved"]]);
  assert.deepEqual([...patched.skills].sort(), ["go", "rust"]);
  await assert.rejects(Employee.patch({ id: "nobody" }).set({ salary: 1 }).go(), /conditional request failed/);
  const { canceled } = await Staff.transaction.write(({ employee, task }) => [
    employee.delete({ id: "e02" }).commit(), task.create({ id: "job", team: "t1" }).commit()]).go();
  assert.equal(canceled, true);
  assert.ok((await Employee.get({ id: "e02" }).go()).data);
  assert.equal((await Employee.scan.go({ pages: "all" })).data.length, 30);
  await client.send(new DeleteTableCommand({ TableName: table }));
  console.log("ElectroDB: entities, collections, patches, cursors and transactions agree");
}

main().catch((error) => { console.error(error); process.exit(1); });
