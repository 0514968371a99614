'use strict';
// Runs a Node handler on the Lambda Runtime API, with the semantics of Lambda's own runtime.
//
// `weir up` starts it in the folder of the function's code, with the folders of the layers as
// arguments: they replace /opt/nodejs. If aws-lambda-ric, AWS's runtime interface client, is
// installed, aws-lambda-ric runs the handler instead. This client needs only Node, and runs one
// invocation at a time.

const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const Module = require('node:module');
const path = require('node:path');
const { pathToFileURL } = require('node:url');
const { format } = require('node:util');

const { LAMBDA_TASK_ROOT: root, _HANDLER: handlerName } = process.env;
const layers = process.argv.slice(2);
const packageFolders = (process.env.NODE_PATH ?? '').split(path.delimiter).filter(Boolean);
/** From this version of the runtime on, Lambda does not pass a callback as the handler's third parameter. */
const WITHOUT_CALLBACKS = 24;
/** How long Node may take to check one file for syntax errors. */
const CHECK_MS = 5_000;
const version = Number(/nodejs(\d+)/.exec(process.env.AWS_EXECUTION_ENV ?? '')?.[1] ?? process.versions.node.split('.')[0]);
const [host, port] = process.env.AWS_LAMBDA_RUNTIME_API.split(':');
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
/** The current invocation. */
let requestId;
let isReady = false;

/** The reason why the handler cannot be invoked, with Lambda's error type and advice. */
class InitError extends Error {
  constructor(kind, message, remedy, cause) {
    super(message);
    this.name = kind;
    this.remedy = remedy;
    this.stack = cause?.stack ?? `${kind}: ${message}`;
  }
}

/** Sends a request to the Runtime API. If the request fails, the process exits. */
function call(method, operation, body, headers = {}) {
  return new Promise((resolve) => {
    const end = (error) => {
      process.stderr.write(`the Runtime API does not answer: ${error.message}\n`);
      process.exit(1);
    };
    const options = { agent, host, port, method, path: `/2018-06-01/runtime/${operation}` };
    if (body !== undefined) headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body), ...headers };
    const request = http.request({ ...options, headers }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part)).on('error', end);
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(parts).toString() }));
    });
    request.on('error', end);
    request.end(body);
  });
}

/** A stack without the frames of this file and of Node itself. */
function framesOfUser(stack) {
  const isForeign = (line) => line.includes(__filename) || line.includes('(node:internal/') || line.includes('data:text/javascript');
  return stack.split('\n').filter((line) => !(/^\s+at /.test(line) && isForeign(line)));
}

/** Returns an error in the form in which Lambda reports it. The thrown value may be of any type. */
function described(error) {
  if (!(error instanceof Error) && !(error && error.stack && error.name)) {
    let text = String(error);
    try {
      if (typeof error === 'object') text = JSON.stringify(error);
    } catch {
      // The value contains a circular reference, so only its text without members is reported.
    }
    return { errorType: typeof error, errorMessage: text, trace: [] };
  }
  return { errorType: error.name || error.constructor.name, errorMessage: error.message, trace: framesOfUser(error.stack ?? '') };
}

function report(operation, error) {
  const found = described(error);
  return call('POST', operation, JSON.stringify(found), { 'Lambda-Runtime-Function-Error-Type': encodeURI(found.errorType) });
}

/** Writes an error to the log, and reports it for the current invocation. */
function fail(id, error, title) {
  const found = described(error);
  process.stdout.write(`ERROR\t${title}\t${JSON.stringify({ ...found, stack: found.trace, trace: undefined })}\n`);
  return report(`invocation/${id}/error`, error);
}

/** Ends the process after an error that no code of the function caught. */
async function end(error, kind, code) {
  const wrapped = new Error(described(error).errorMessage);
  wrapped.name = kind ?? described(error).errorType;
  wrapped.stack = error?.stack ?? String(error);
  process.stderr.write(`${framesOfUser(wrapped.stack).join('\n')}\n`);
  // While the process waits for an invocation, its only connection is in use, and no client waits for a report.
  if (requestId) await fail(requestId, wrapped, 'Uncaught Exception');
  else if (!isReady) await report('init/error', wrapped);
  process.exit(code);
}

/** With `LogFormat: JSON` each line of the console is an object. */
function writeLogsAsJson() {
  const levels = ['TRACE', 'DEBUG', 'INFO', 'WARN', 'ERROR', 'FATAL'];
  const least = Math.max(levels.indexOf((process.env.AWS_LAMBDA_LOG_LEVEL ?? '').toUpperCase()), 0);
  const methods = { trace: 'TRACE', debug: 'DEBUG', log: 'INFO', info: 'INFO', warn: 'WARN', error: 'ERROR' };
  for (const [method, level] of Object.entries(methods)) {
    console[method] = (...values) => {
      if (levels.indexOf(level) < least) return;
      const message = values.length === 1 && typeof values[0] === 'object' ? values[0] : format(...values);
      process.stdout.write(`${JSON.stringify({ timestamp: new Date().toISOString(), level, requestId, message })}\n`);
    };
  }
}

/** Returns the file of a module whose name has no extension, searched as on Lambda. */
function fileOf(folder, name) {
  const base = path.join(folder, name);
  const files = [base, `${base}.js`, `${base}.mjs`, `${base}.cjs`, path.join(base, 'index.js'), path.join(base, 'index.mjs')];
  return files.find((file) => fs.statSync(file, { throwIfNoEntry: false })?.isFile());
}

/** Returns the path on this machine of a path in a layer. */
function ofLayer(specifier) {
  const below = /^\/opt\/nodejs\/(.+)/.exec(specifier)?.[1];
  return (below && layers.map((layer) => fileOf(layer, below)).find(Boolean)) || specifier;
}

/** Makes `require` and `import` find the modules of layers and installed packages; `import` ignores NODE_PATH. */
function extendResolution() {
  const resolveFile = Module._resolveFilename;
  Module._resolveFilename = function (specifier, ...rest) {
    return resolveFile.call(this, ofLayer(specifier), ...rest);
  };
  const hooks = `
    import { existsSync, statSync } from 'node:fs';
    const parents = ${JSON.stringify(packageFolders.map((folder) => pathToFileURL(path.join(path.dirname(folder), '_.mjs')).href))};
    const layers = ${JSON.stringify(layers.map((layer) => pathToFileURL(`${layer}/`).href))};
    const opened = (url) => existsSync(url) && statSync(url).isFile();
    export async function resolve(specifier, context, next) {
      const below = /^(?:file:\\/\\/)?\\/opt\\/nodejs\\/(.+)/.exec(specifier)?.[1];
      const inLayer = below && layers.map((layer) => new URL(below, layer)).find(opened);
      if (inLayer) return next(inLayer.href, context);
      try {
        return await next(specifier, context);
      } catch (error) {
        if (error?.code !== 'ERR_MODULE_NOT_FOUND' || /^[./]|^file:/.test(specifier)) throw error;
        for (const parentURL of parents) {
          try {
            return await next(specifier, { ...context, parentURL });
          } catch {}
        }
        throw error;
      }
    }`;
  if (packageFolders.length || layers.length) Module.register?.(`data:text/javascript,${encodeURIComponent(hooks)}`);
}

/** Adds the file and the line to a syntax error; that of an ES module has neither. */
function withPlace(error, file) {
  if (!error.stack?.startsWith('SyntaxError')) return error;
  const checked = spawnSync(process.execPath, ['--check', file], { encoding: 'utf8', timeout: CHECK_MS });
  const place = checked.status === 1 ? checked.stderr.split('\nSyntaxError')[0].trimEnd() : '';
  if (place) error.stack = `${place}\n\n${error.stack}`;
  return error;
}

/** Returns the error for a module, of this file, that cannot be loaded. */
function initError(error, file) {
  const { code, message = String(error) } = error ?? {};
  if (code === 'MODULE_NOT_FOUND' || code === 'ERR_MODULE_NOT_FOUND') {
    const name = /(?:module|package) '([^']+)'/.exec(message)?.[1] ?? '';
    const remedy = name === 'aws-sdk'
      ? 'Lambda has no aws-sdk (version 2) since nodejs18.x: add it to `package.json`, or use @aws-sdk/client-… of version 3'
      : /^[./]/.test(name) ? `put the file there, or correct the path in the code below ${root}`
      : `add \`${name}\` to the dependencies of \`package.json\` in ${root} and start \`weir up\` again; a layer must be a folder of this template`;
    return new InitError('Runtime.ImportModuleError', `Error: ${message}`, remedy, error);
  }
  if (error instanceof SyntaxError) return new InitError('Runtime.UserCodeSyntaxError', `SyntaxError: ${message}`, undefined, withPlace(error, file));
  return error;
}

async function load(file) {
  if (!file.endsWith('.mjs')) {
    try {
      return require(file);
    } catch (error) {
      if (error?.code !== 'ERR_REQUIRE_ESM' && error?.code !== 'ERR_REQUIRE_ASYNC_MODULE') throw error;
    }
  }
  return import(pathToFileURL(file).href);
}

/** Loads the module of the handler and returns its function. */
async function findHandler() {
  const [, folder, name, exported] = /^(.*\/)?([^./]+)\.(.+)$/.exec(handlerName) ?? [];
  if (!exported) {
    throw new InitError('Runtime.MalformedHandlerName', `Bad handler: ${handlerName}`, 'write `Handler: FILE.FUNCTION`, such as index.handler for `handler` of index.js');
  }
  const folderOfModule = ofLayer(folder ?? '').startsWith('/') ? folder : path.join(root, folder ?? '');
  const file = fileOf(folderOfModule, name) ?? ofLayer(`${folder ?? ''}${name}`);
  if (!path.isAbsolute(file) || !fs.existsSync(file)) {
    const message = `Error: Cannot find module '${name}'`;
    throw new InitError('Runtime.ImportModuleError', message, `there is no ${name}.js, .mjs or .cjs in ${folderOfModule}: correct Handler and CodeUri`);
  }
  let module;
  try {
    module = await load(file);
  } catch (error) {
    throw initError(error, file);
  }
  const inside = (object) => exported.split('.').reduce((found, key) => found?.[key], object);
  const handler = inside(module) ?? inside(module.default);
  if (typeof handler !== 'function') {
    const names = Object.keys(module).slice(0, 8).map((key) => `\`${key}\``).join(', ') || 'none';
    throw new InitError('Runtime.HandlerNotFound', `${handlerName} is undefined or not exported`, `export \`${exported}\` from ${file}, or correct Handler; its exports: ${names}`);
  }
  if (version >= WITHOUT_CALLBACKS && handler.length >= 3) {
    throw new InitError('Runtime.CallbackHandlerDeprecated', `Lambda takes no callback of a handler since nodejs${WITHOUT_CALLBACKS}.x`, `make ${handlerName} an async function of (event, context)`);
  }
  return handler;
}

function contextOf(headers) {
  const environment = process.env;
  const deadline = Number(headers['lambda-runtime-deadline-ms']);
  const parsed = (name) => (headers[name] ? JSON.parse(headers[name]) : undefined);
  const context = {
    callbackWaitsForEmptyEventLoop: true,
    functionVersion: environment.AWS_LAMBDA_FUNCTION_VERSION,
    functionName: environment.AWS_LAMBDA_FUNCTION_NAME,
    memoryLimitInMB: environment.AWS_LAMBDA_FUNCTION_MEMORY_SIZE,
    logGroupName: environment.AWS_LAMBDA_LOG_GROUP_NAME,
    logStreamName: environment.AWS_LAMBDA_LOG_STREAM_NAME,
    clientContext: parsed('lambda-runtime-client-context'),
    identity: parsed('lambda-runtime-cognito-identity'),
    invokedFunctionArn: headers['lambda-runtime-invoked-function-arn'],
    awsRequestId: headers['lambda-runtime-aws-request-id'],
    getRemainingTimeInMillis: () => Math.max(0, deadline - Date.now()),
  };
  return context;
}

/** Calls a handler, which may respond with a promise, with its callback, or by leaving the event loop empty. */
function withCallback(handler, event, context) {
  return new Promise((resolve, reject) => {
    let isAnswered = false;
    const answer = (error, result) => {
      process.removeAllListeners('beforeExit');
      return error ? reject(error) : resolve(result);
    };
    const callback = (error, result) => {
      if (isAnswered) return;
      isAnswered = true;
      if (error || !context.callbackWaitsForEmptyEventLoop) return answer(error, result);
      process.removeAllListeners('beforeExit');
      process.once('beforeExit', () => answer(error, result));
    };
    // Unlike the third parameter, these functions do not wait until the event loop is empty.
    const done = (error, result) => {
      if (isAnswered) return;
      isAnswered = true;
      answer(error, result);
    };
    Object.assign(context, { done, succeed: (result) => done(null, result), fail: (error) => done(error ?? new Error('handled')) });
    process.once('beforeExit', () => answer(null, null));
    let result;
    try {
      result = handler(event, context, callback);
    } catch (error) {
      answer(error ?? new Error('thrown without a reason'));
      return;
    }
    if (typeof result?.then === 'function') {
      isAnswered = true;
      result.then((value) => answer(null, value), (error) => answer(error ?? new Error('rejected without a reason')));
    }
  });
}

function toJson(value) {
  try {
    return JSON.stringify(value === undefined ? null : value) ?? 'null';
  } catch (error) {
    process.stderr.write(`the response is not JSON: ${error.message}\n`);
    throw new Error('Unable to stringify response body');
  }
}

async function invoke(handler) {
  requestId = undefined;
  isReady = true;
  const { status, headers, body } = await call('GET', 'invocation/next');
  if (status !== 200) throw new Error(`the Runtime API refuses an invocation: status ${status}, ${body}`);
  requestId = headers['lambda-runtime-aws-request-id'];
  process.env._X_AMZN_TRACE_ID = headers['lambda-runtime-trace-id'] ?? '';
  let response;
  try {
    const event = JSON.parse(body);
    const context = contextOf(headers);
    response = toJson(version >= WITHOUT_CALLBACKS ? await handler(event, context) : await withCallback(handler, event, context));
  } catch (error) {
    await fail(requestId, error, 'Invoke Error');
    return;
  }
  await call('POST', `invocation/${requestId}/response`, response);
}

/** Returns AWS's own client, if the function or a layer has it. */
function clientOfAws() {
  for (const folder of [path.join(root, 'node_modules'), ...packageFolders]) {
    const place = path.join(folder, 'aws-lambda-ric');
    try {
      const { bin } = JSON.parse(fs.readFileSync(path.join(place, 'package.json'), 'utf8'));
      return path.join(place, typeof bin === 'string' ? bin : bin['aws-lambda-ric']);
    } catch {}
  }
  return undefined;
}

async function main() {
  extendResolution();
  const other = clientOfAws();
  if (other) {
    process.argv = [process.argv[0], other, handlerName];
    await import(pathToFileURL(other).href);
    return;
  }
  process.on('uncaughtException', (error) => void end(error, undefined, 129));
  process.on('unhandledRejection', (error) => void end(error, 'Runtime.UnhandledPromiseRejection', 128));
  if ((process.env.AWS_LAMBDA_LOG_FORMAT ?? '').toUpperCase() === 'JSON') writeLogsAsJson();
  let handler;
  try {
    handler = await findHandler();
  } catch (error) {
    process.stderr.write(`${framesOfUser(String(error?.stack ?? error)).join('\n')}\n${error?.remedy ? `${error.remedy}\n` : ''}`);
    await report('init/error', error);
    process.exit(1);
  }
  for (;;) await invoke(handler);
}

void main();
