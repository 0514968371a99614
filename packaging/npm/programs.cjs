// The programs of the package for this platform: finds and runs them.
"use strict";

const { spawn } = require("node:child_process");
const path = require("node:path");

const PACKAGE = `weir-dynamodb-${process.platform}-${process.arch}`;

/** Returns the path of a program. */
function program(name) {
  try {
    return path.join(path.dirname(require.resolve(`${PACKAGE}/package.json`)), "bin", name);
  } catch {
    throw new Error(
      `the package ${PACKAGE} is not installed: npm skips it with --omit=optional, and on platforms ` +
        "without a build of Weir; build from source there, see docs/install.md",
    );
  }
}

/** Runs a program with the arguments of this process, and exits with its exit code or signal. */
function run(name) {
  const child = spawn(program(name), process.argv.slice(2), { stdio: "inherit" });
  // A terminal also sends Ctrl-C to the program; a second signal from here would stop it immediately.
  process.on("SIGINT", () => {});
  process.on("SIGHUP", () => {});
  process.on("SIGTERM", () => child.kill("SIGTERM"));
  child.on("error", (error) => {
    console.error(`error: ${error.message}`);
    process.exit(1);
  });
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    // Without a listener, the signal ends this process in the same way as the program.
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}

module.exports = { program, run };
