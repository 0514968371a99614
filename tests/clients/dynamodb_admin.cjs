// dynamodb-admin in a headless Chromium: lists tables, browses, edits and deletes items.
// With SCREENSHOT=FILE it also writes a picture of the items.
const assert = require("node:assert/strict");
const { DynamoDBClient, CreateTableCommand, DeleteTableCommand } = require("@aws-sdk/client-dynamodb");
const lib = require("@aws-sdk/lib-dynamodb");
const { createServer } = require("dynamodb-admin");
const puppeteer = require("puppeteer-core");

const TableName = "gardens";

async function main() {
  const { default: chromium } = await import(require.resolve("@sparticuz/chromium"));
  const client = new DynamoDBClient({});
  const documents = lib.DynamoDBDocumentClient.from(client);
  await client.send(new CreateTableCommand({
    TableName, BillingMode: "PAY_PER_REQUEST",
    AttributeDefinitions: [{ AttributeName: "bed", AttributeType: "S" }, { AttributeName: "plant", AttributeType: "S" }],
    KeySchema: [{ AttributeName: "bed", KeyType: "HASH" }, { AttributeName: "plant", KeyType: "RANGE" }],
  }));
  for (const [bed, plant, height] of [["north", "iris", 60], ["north", "mint", 30], ["south", "maize", 210], ["south", "thyme", 15]]) {
    await documents.send(new lib.PutCommand({ TableName, Item: { bed, plant, height, watered: ["mon", "thu"] } }));
  }
  const stored = async (bed, plant) => (await documents.send(new lib.GetCommand({ TableName, Key: { bed, plant } }))).Item;

  const server = await new Promise((resolve) => {
    const listening = createServer({ dynamoDbClient: client }).listen(0, "127.0.0.1", () => resolve(listening));
  });
  const url = `http://127.0.0.1:${server.address().port}`;
  const browser = await puppeteer.launch({
    args: puppeteer.defaultArgs({ args: chromium.args, headless: "shell" }),
    executablePath: await chromium.executablePath(), headless: "shell",
  });
  try {
    const page = await browser.newPage();
    await page.setViewport({ width: 1100, height: 480 });
    page.on("dialog", (dialog) => dialog.accept());
    const text = () => page.evaluate(() => document.body.innerText);

    await page.goto(url, { waitUntil: "networkidle0" });
    assert.ok((await text()).includes(TableName), "the list of tables");
    await page.goto(`${url}/tables/${TableName}`, { waitUntil: "networkidle0" });
    for (const plant of ["iris", "mint", "maize", "thyme"]) {
      assert.ok((await text()).includes(plant), `${plant} in the list of items`);
    }
    if (process.env.SCREENSHOT) await page.screenshot({ path: process.env.SCREENSHOT });

    await page.goto(`${url}/tables/${TableName}/items/south,maize`, { waitUntil: "networkidle0" });
    await page.evaluate(() => editor.setValue(JSON.stringify({ ...JSON.parse(editor.getValue()), height: 250 })));
    await page.click("#saveButton");
    await page.waitForSelector("#saveButton.btn-success");
    assert.equal((await stored("south", "maize")).height, 250);

    await Promise.all([page.waitForNavigation({ waitUntil: "networkidle0" }), page.click("button.btn-danger")]);
    assert.equal(await stored("south", "maize"), undefined);
    assert.ok(!(await text()).includes("maize"), "a deleted item is gone from the list");
    assert.equal((await stored("south", "thyme")).height, 15);
  } finally {
    await browser.close();
    server.close();
  }
  await client.send(new DeleteTableCommand({ TableName }));
  console.log("dynamodb-admin: tables and items are listed, edited and deleted in Chromium");
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
