// Runs a store, or all of a template, for the duration of a test: for node --test, vitest and jest.
//
// The standard input of each program is a pipe that this process holds. The system closes the pipe
// when this process ends, even if it is killed, and the program then stops.
"use strict";

const { execFile, spawn } = require("node:child_process");
const { once } = require("node:events");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");
const { fileURLToPath } = require("node:url");

const { program } = require("./programs.cjs");

/** How long a store may take to listen, on a busy machine. */
const STORE_MS = 30_000;
/** How long `weir up` may take to start: the first start compiles functions in Rust. */
const UP_MS = 600_000;
/** How long one admin request or one command may take. */
const REQUEST_MS = 60_000;
/** How long a program may take to shut down before it is killed: an invocation may be in progress. */
const STOP_MS = 10_000;
/** The number of characters from the end of a log that an error shows: the last lines say why a program exited. */
const TAIL_CHARACTERS = 4000;
/** States of a mapping in `weir status` that waiting does not change. */
const NEVER = ["ended", "gap", "does not run here"];
/** How many lines of a function's log a failed `settle` shows: the last few attempts with their errors. */
const LOG_LINES = 20;
/** The variables that every AWS SDK needs; the local endpoints accept any keys. */
const KEYS = {
  AWS_ACCESS_KEY_ID: "local",
  AWS_SECRET_ACCESS_KEY: "local",
  AWS_REGION: "us-east-1",
  AWS_DEFAULT_REGION: "us-east-1",
};

/** The environment without the variables that would change a program's behavior, or direct it to AWS. */
function environment() {
  const isHidden = ([name]) => /^(AWS|LOCAL_STORE|WEIR)_/.test(name);
  return Object.fromEntries(Object.entries(process.env).filter((entry) => !isHidden(entry)));
}

/** Sends a request of docs/reference/admin.md; rejects with the store's reason if it is refused. */
async function admin(endpoint, method, name, body) {
  const answer = await fetch(`${endpoint}/_weir/${name}`, {
    method,
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(REQUEST_MS),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} /_weir/${name}: ${answer.status} ${text}`);
  return JSON.parse(text);
}

/** The clock of a store. It never runs backwards: an advance lasts as long as the store. */
class Clock {
  #endpoint;
  constructor(endpoint) {
    this.#endpoint = endpoint;
  }
  async #change(change) {
    return new Date((await admin(this.#endpoint, "POST", "clock", change)).now_ms);
  }
  async now() {
    return new Date((await admin(this.#endpoint, "GET", "clock")).now_ms);
  }
  advance(milliseconds) {
    return this.#change({ advance_ms: milliseconds });
  }
  freeze() {
    return this.#change({ freeze: true });
  }
  resume() {
    return this.#change({ resume: true });
  }
  async sweep() {
    return (await admin(this.#endpoint, "POST", "ttl/sweep")).expired;
  }
}

/** A running program with its own folder, which is removed when the program stops. */
class Process {
  #child;
  #ended;
  #fault = null;

  static async start(name, parameters, milliseconds) {
    const started = new this(name, parameters);
    const deadline = Date.now() + milliseconds;
    while (!started.find()) {
      const code = started.#child.exitCode ?? started.#child.signalCode ?? started.#fault;
      if (code !== null) await started.#fail(`the program exited with ${code}`);
      if (Date.now() > deadline) await started.#fail(`not ready after ${milliseconds} ms`);
      await sleep(10);
    }
    return started;
  }

  constructor(name, parameters) {
    this.folder = fs.mkdtempSync(path.join(os.tmpdir(), "weir-"));
    const log = fs.openSync(path.join(this.folder, "log"), "a");
    this.#child = spawn(program(name), [...parameters, "--end-with-stdin"], {
      stdio: ["pipe", log, log],
      cwd: this.folder,
      env: environment(),
    });
    fs.closeSync(log);
    this.#ended = once(this.#child, "exit").catch((error) => (this.#fault = error.message));
    // The test process can end even if a test does not stop the program.
    this.#child.unref();
    this.#child.stdin.unref();
    this.#child.stdin.on("error", () => {});
  }

  get id() {
    return this.#child.pid;
  }

  log() {
    return fs.readFileSync(path.join(this.folder, "log"), "utf8");
  }

  async #fail(what) {
    const tail = this.log().slice(-TAIL_CHARACTERS);
    await this.stop();
    throw new Error(`${what}; its log ends:\n${tail}`);
  }

  async stop() {
    this.#child.ref();
    this.#child.stdin.end();
    const kill = setTimeout(() => this.#child.kill("SIGKILL"), STOP_MS);
    await this.#ended;
    clearTimeout(kill);
    fs.rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.stop();
  }
}

class Store extends Process {
  find() {
    this.endpoint = this.log().match(/listening on (http:\/\/\S+)/)?.[1];
    this.clock = new Clock(this.endpoint);
    return this.endpoint;
  }

  get environment() {
    return {
      ...KEYS,
      AWS_ENDPOINT_URL_DYNAMODB: this.endpoint,
      AWS_ENDPOINT_URL_DYNAMODB_STREAMS: this.endpoint,
    };
  }

  async empty() {
    return (await admin(this.endpoint, "DELETE", "tables")).deleted;
  }
}

class Up extends Process {
  find() {
    const file = path.join(this.folder, ".weir", "running.json");
    if (!fs.existsSync(file)) return false;
    const told = JSON.parse(fs.readFileSync(file, "utf8"));
    Object.assign(this, { dynamodb: told.dynamodb, s3: told.s3, invoke: told.lambda });
    this.clock = new Clock(this.dynamodb);
    return true;
  }

  get environment() {
    return {
      ...KEYS,
      AWS_ENDPOINT_URL_DYNAMODB: this.dynamodb,
      AWS_ENDPOINT_URL_DYNAMODB_STREAMS: this.dynamodb,
      AWS_ENDPOINT_URL_S3: this.s3,
      AWS_ENDPOINT_URL_LAMBDA: this.invoke,
    };
  }

  weir(...parameters) {
    const options = { cwd: this.folder, env: environment(), timeout: REQUEST_MS };
    return new Promise((resolve) => {
      execFile(program("weir"), parameters, options, (error, stdout, stderr) => {
        resolve({ code: error ? (error.code ?? error.signal) : 0, stdout, stderr });
      });
    });
  }

  async settle(milliseconds = 60_000) {
    const deadline = Date.now() + milliseconds;
    for (;;) {
      const status = await this.weir("status", "--exit-code", "--output", "json");
      if (status.code === 0) return;
      const told = status.stdout + status.stderr;
      if (status.code !== 3) throw new Error(`\`weir status\` failed:\n${told}`);
      const rows = JSON.parse(status.stdout);
      if (rows.some((row) => row.discarded || NEVER.includes(row.state))) {
        throw new Error(`at least one record was not processed:\n${told}${this.#logEnds()}`);
      }
      if (Date.now() > deadline) {
        throw new Error(`records still wait:\n${told}${this.#logEnds()}`);
      }
      await sleep(50);
    }
  }

  // Returns the last lines of each function's log, because this folder is deleted when the test ends.
  #logEnds() {
    const folder = path.join(this.folder, ".weir", "up", "logs");
    const files = fs.existsSync(folder) ? fs.readdirSync(folder).sort() : [];
    return files
      .filter((file) => file.endsWith(".log"))
      .map((file) => {
        const lines = fs.readFileSync(path.join(folder, file), "utf8").trimEnd().split("\n");
        const ends = lines.slice(-LOG_LINES).join("\n");
        return `the last lines of ${path.basename(file, ".log")}:\n${ends}\n`;
      })
      .join("");
  }
}

function startStore() {
  const parameters = ["--data", "data", "--port", "0", "--replicas", "1", "--region", "us-east-1"];
  return Store.start("local-store", parameters, STORE_MS);
}

function startUp({ template, parameters = {}, milliseconds = UP_MS }) {
  const file = fs.realpathSync(template instanceof URL ? fileURLToPath(template) : template);
  const values = Object.entries(parameters).map(([name, value]) => `--parameter=${name}=${value}`);
  const ports = ["--port", "0", "--s3-port", "0", "--invoke-port", "0"];
  return Up.start("weir", ["--template", file, ...values, "up", ...ports], milliseconds);
}

module.exports = { startStore, startUp };
