#!/usr/bin/env node
"use strict";

require("../programs.cjs").run("local-store");
