// Pages of other origins in a headless Chromium against every port of `weir up`: requests without a CORS
// preflight, a form, and requests after DNS rebinding. None has an effect. The same page reaches a server
// without a gate, which proves that its requests are sent; and a page whose origin is given with --allow-origin
// may use the store.
const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const fs = require("node:fs");
const http = require("node:http");
const os = require("node:os");
const path = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");
const { DynamoDBClient, PutItemCommand, ScanCommand } = require("@aws-sdk/client-dynamodb");
const puppeteer = require("puppeteer-core");

const WEIR = process.env.WEIR ?? path.join(__dirname, "../../target/debug/weir");
const FUNCTION = "EraseFunction";
const BUCKET = "archive-bucket";
const TEMPLATE = `Transform: AWS::Serverless-2016-10-31
Resources:
  Erase:
    Type: AWS::Serverless::Function
    Properties: {FunctionName: ${FUNCTION}, CodeUri: code, Handler: bootstrap, Runtime: provided.al2023, Timeout: 300}
  Bucket: {Type: AWS::S3::Bucket, Properties: {BucketName: ${BUCKET}}}
  Table:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: victims
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: p, AttributeType: S}]
      KeySchema: [{AttributeName: p, KeyType: HASH}]
`;
// Records the address of its Runtime API and each invocation, and answers when the file `release` exists.
const BOOTSTRAP = (folder) => `#!${process.execPath}
const fs = require("node:fs");
const runtime = "http://" + process.env.AWS_LAMBDA_RUNTIME_API;
const api = runtime + "/2018-06-01/runtime/invocation/";
const file = (name) => ${JSON.stringify(folder)} + "/" + name;
(async () => {
  for (;;) {
    const next = await fetch(api + "next");
    const id = next.headers.get("lambda-runtime-aws-request-id");
    fs.appendFileSync(file("invoked"), (await next.text()) + "\\n");
    fs.writeFileSync(file("runtime.new"), JSON.stringify([runtime, id]));
    fs.renameSync(file("runtime.new"), file("runtime"));
    while (!fs.existsSync(file("release"))) await new Promise((resolve) => setTimeout(resolve, 100));
    await fetch(api + id + "/response", { method: "POST", body: '{"own":true}' });
  }
})();
`;

// Runs in the page: every request that a browser sends without a preflight. Resolves when all are sent.
async function attack(base, paths) {
  const quiet = (promise) => promise.catch(() => undefined);
  const simple = (path, body, type) =>
    quiet(fetch(base + path, { method: "POST", mode: "no-cors", body, headers: { "Content-Type": type } }));
  for (const [path, body] of paths) {
    await simple(path, body, "text/plain");
    await simple(path, body, "application/x-www-form-urlencoded");
    await quiet(fetch(base + path, { method: "POST", mode: "no-cors", body: new Blob([body]) }));
    const form = new FormData();
    form.append("key", "uploaded");
    form.append("file", new Blob(["content"]), "uploaded");
    await quiet(fetch(base + path, { method: "POST", mode: "no-cors", body: form }));
    navigator.sendBeacon(base + path, body);
    const frame = document.createElement("iframe");
    frame.name = "target" + Math.random();
    document.body.append(frame);
    const element = document.createElement("form");
    Object.assign(element, { method: "post", enctype: "text/plain", action: base + path, target: frame.name });
    const input = document.createElement("input");
    Object.assign(input, { name: body, value: "" });
    element.append(input);
    document.body.append(element);
    element.submit();
  }
  await new Promise((resolve) => setTimeout(resolve, 500));
}

// Runs in a page whose own name resolves to the port: requests of any kind, as none needs a preflight.
async function rebound(requests) {
  const statuses = [];
  for (const [method, path, headers, body] of requests) {
    try {
      statuses.push((await fetch(path, { method, headers, body })).status);
    } catch {
      statuses.push(0);
    }
  }
  return statuses;
}

async function listening(server) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server.address().port;
}

async function start(folder, flags) {
  const log = fs.openSync(path.join(folder, "weir.log"), "a");
  const child = spawn(WEIR, ["up", "--port", "0", "--s3-port", "0", ...flags], { cwd: folder, stdio: ["ignore", log, log] });
  const running = path.join(folder, ".weir/running.json");
  for (let tries = 0; tries < 1200 && !fs.existsSync(running); tries += 1) {
    assert.equal(child.exitCode, null, fs.readFileSync(path.join(folder, "weir.log"), "utf8"));
    await sleep(100);
  }
  return { child, running: JSON.parse(fs.readFileSync(running, "utf8")) };
}

async function main() {
  const { default: chromium } = await import(require.resolve("@sparticuz/chromium"));
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "weir-browser-"));
  const invoked = path.join(folder, "invoked");
  fs.mkdirSync(path.join(folder, "code"));
  fs.writeFileSync(path.join(folder, "code/bootstrap"), BOOTSTRAP(folder), { mode: 0o755 });
  fs.writeFileSync(path.join(folder, "template.yaml"), TEMPLATE);

  const pages = http.createServer((_, answer) => answer.writeHead(200, { "Content-Type": "text/html" }).end("<body>page</body>"));
  const pagePort = await listening(pages);
  const friendly = `http://friendly.example:${pagePort}`;
  const seen = [];
  const control = http.createServer((request, answer) => { seen.push(request.headers["content-type"] ?? "none"); answer.end(); });
  const controlUrl = `http://127.0.0.1:${await listening(control)}`;

  const { child, running } = await start(folder, ["--allow-origin", friendly]);
  const args = puppeteer.defaultArgs({ args: chromium.args, headless: "shell" });
  const names = ["evil.example", "friendly.example", "rebound.example"].map((name) => `MAP ${name} 127.0.0.1`);
  const launch = async (flags) => puppeteer.launch({
    args: [...flags, `--host-resolver-rules=${names.join(",")}`],
    executablePath: process.env.CHROMIUM ?? (await chromium.executablePath()), headless: "shell",
  });
  const browser = await launch(args);
  // Checks origins as an ordinary browser does: it sends `Origin` and preflight requests.
  const strict = await launch(args.filter((flag) => flag !== "--disable-web-security"));
  try {
    const client = new DynamoDBClient({ endpoint: running.dynamodb });
    await client.send(new PutItemCommand({ TableName: "victims", Item: { p: { S: "here" } } }));
    assert.equal((await fetch(`${running.s3}/${BUCKET}/victim`, { method: "PUT", body: "here" })).status, 200);
    const objects = async () => (await (await fetch(`${running.s3}/${BUCKET}`)).text()).match(/<Key>[^<]*/g);
    const invoke = `/2015-03-31/functions/${FUNCTION}/invocations`;
    const erase = "<Delete><Object><Key>victim</Key></Object></Delete>";
    const deleteItem = JSON.stringify({ TableName: "victims", Key: { p: { S: "here" } } });
    // One invocation waits until the end of the test: only its function may answer it.
    const held = fetch(running.lambda + invoke, { method: "POST", body: '"held"', headers: { "Content-Type": "application/json" } });
    for (let tries = 0; tries < 300 && !fs.existsSync(path.join(folder, "runtime")); tries += 1) await sleep(100);
    const [runtime, id] = JSON.parse(fs.readFileSync(path.join(folder, "runtime"), "utf8"));
    const forged = `/2018-06-01/runtime/invocation/${id}/response`;
    // Even a page that has the console's token has no effect.
    const pipelines = await (await fetch(`${running.console}/pipelines`)).text();
    const advance = `by=1h&back=/pipelines&token=${pipelines.match(/name="token" value="([^"]+)"/)[1]}`;
    const clock = async () => (await (await fetch(`${running.dynamodb}/_weir/clock`)).json()).now_ms - Date.now();
    const unchanged = async (after) => {
      assert.equal(fs.readFileSync(invoked, "utf8"), '"held"\n', `${after}: a function was invoked`);
      assert.ok(Math.abs(await clock()) < 1_800_000, `${after}: the clock was advanced`);
      assert.deepEqual(await objects(), ["<Key>victim"], `${after}: objects`);
      assert.equal((await client.send(new ScanCommand({ TableName: "victims" }))).Count, 1, `${after}: items`);
    };
    await unchanged("before anything");

    const page = await browser.newPage();
    await page.goto(`http://evil.example:${pagePort}/`);
    for (const [url, paths] of [
      [controlUrl, [["/", "body"]]],
      [running.lambda, [[invoke, "{}"]]],
      [running.s3, [[`/${BUCKET}?delete`, erase], [`/${BUCKET}`, "form"]]],
      [running.dynamodb, [["/", deleteItem], ["/_weir/ttl/sweep", ""]]],
      [running.console, [["/clock/advance", advance]]],
      [runtime, [[forged, '{"forged":true}'], ["/2018-06-01/runtime/init/error", "{}"]]],
    ]) {
      await page.evaluate(attack, url, paths);
      await unchanged(`a page of another origin at ${url}`);
    }
    // Requests without a preflight arrive where there is no gate.
    for (const type of [/^text\/plain/, /^application\/x-www-form-urlencoded/, /^multipart\/form-data/, /^none/]) {
      assert.ok(seen.some((sent) => type.test(sent)), `${type} of ${seen}`);
    }
    assert.ok(seen.length >= 6, `${seen}`);

    const target = { "X-Amz-Target": "DynamoDB_20120810.DeleteItem", "Content-Type": "application/x-amz-json-1.0" };
    await page.setRequestInterception(true);
    page.on("request", (request) => {
      if (request.url().endsWith("/page")) request.respond({ contentType: "text/html", body: "<body>page</body>" });
      else request.continue();
    });
    for (const [url, requests] of [
      [running.dynamodb, [["POST", "/", target, deleteItem], ["POST", "/_weir/clock", {}, '{"advance_ms":86400000}']]],
      [running.s3, [["DELETE", `/${BUCKET}/victim`, {}, undefined], ["GET", `/${BUCKET}/victim`, {}, undefined]]],
      [running.lambda, [["POST", invoke, { "Content-Type": "application/json" }, "{}"]]],
      [running.console, [["GET", "/pipelines", {}, undefined], ["POST", "/clock/advance", { "Content-Type": "application/x-www-form-urlencoded" }, advance]]],
      [runtime, [["GET", "/2018-06-01/runtime/invocation/next", {}, undefined], ["POST", forged, {}, '{"forged":true}']]],
    ]) {
      await page.goto(`http://rebound.example:${new URL(url).port}/page`);
      const statuses = await page.evaluate(rebound, requests);
      assert.deepEqual(statuses, requests.map(() => 403), `rebinding at ${url}`);
      await unchanged(`rebinding at ${url}`);
    }

    // The same requests of a program have an effect.
    const form = { method: "POST", redirect: "manual", body: advance, headers: { "Content-Type": "application/x-www-form-urlencoded" } };
    assert.equal((await fetch(`${running.console}/clock/advance`, form)).status, 303);
    assert.ok(await clock() > 1_800_000);
    fs.writeFileSync(path.join(folder, "release"), "");
    assert.deepEqual(await (await held).json(), { own: true });

    // The allowed origin works, with the preflight request.
    const other = await strict.newPage();
    await other.goto(friendly);
    const answer = await other.evaluate(async (url, headers, body) => {
      const answered = await fetch(url, { method: "POST", headers, body });
      return [answered.status, answered.headers.get("x-amzn-requestid") !== null];
    }, running.dynamodb, target, deleteItem);
    assert.deepEqual(answer, [200, true]);
    assert.equal((await client.send(new ScanCommand({ TableName: "victims" }))).Count, 0);
  } finally {
    await browser.close();
    await strict.close();
    child.kill("SIGINT");
    if (child.exitCode === null) await new Promise((resolve) => child.once("exit", resolve));
    pages.close();
    control.close();
    fs.rmSync(folder, { recursive: true, force: true });
  }
  console.log("browser pages: other origins and rebound names change nothing in Chromium; a named origin may");
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
