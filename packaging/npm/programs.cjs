// The programs of the package for this platform: where they are, and how a command runs one.
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
      `the package ${PACKAGE} is not installed: npm skips it with --omit=optional, and where ` +
        "there is no build of Weir; build from source there, see docs/install.md",
    );
  }
}

/** Runs a program with the arguments of this process, and ends as it ends. */
function run(name) {
  const child = spawn(program(name), process.argv.slice(2), { stdio: "inherit" });
  // A terminal sends Ctrl-C to the program too, and a second one would end it at once.
  process.on("SIGINT", () => {});
  process.on("SIGHUP", () => {});
  process.on("SIGTERM", () => child.kill("SIGTERM"));
  child.on("error", (error) => {
    console.error(`error: ${error.message}`);
    process.exit(1);
  });
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    // Without a listener the signal ends this process as it ended the program.
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}

module.exports = { program, run };
