// The code that an application needs while `weir migrate` moves its table. Copy this file; see docs/migration.md.
//
//     const tables = { source: ["orders", ["orderID"]], target: ["shop", ["pk", "sk"]] }; // each side has its own key
//     const [table, keys] = tables[await route.write()]; // route = new Route(dynamodb, "shop", { control })
//     await dynamodb.putItem(insert(table, item, keys, "total")); // an item of that side's shape
//
// `control` is the control table; without it, weir-migrations.

/** @typedef {Record<string, import("@aws-sdk/client-dynamodb").AttributeValue>} Item */

/**
 * The route of a migration, cached for `seconds` since the request for it: half of the plan's `gate_seconds`.
 * The time-out of a write, including retries, must be below the other half. Methods throw errors of the request.
 */
export class Route {
  /** @type {{ asked: number, sides: Item } | undefined} */
  known;

  /** @param {import("@aws-sdk/client-dynamodb").DynamoDB} dynamodb @param {string} migration */
  constructor(dynamodb, migration, { control = "weir-migrations", seconds = 1 } = {}) {
    this.dynamodb = dynamodb;
    this.control = control;
    this.seconds = seconds;
    this.key = { migration: { S: migration }, entry: { S: "ROUTE" } };
  }

  /** @param {"read" | "write"} use */
  async side(use) {
    let known = this.known;
    while (!known || performance.now() - known.asked > this.seconds * 1000) {
      const asked = performance.now();
      const request = { TableName: this.control, Key: this.key, ConsistentRead: true };
      const answer = await this.dynamodb.getItem(request);
      known = this.known = { asked, sides: answer.Item ?? {} };
    }
    return known.sides[use]?.S ?? "source";
  }

  /** Returns `source` or `target`. */
  read() {
    return this.side("read");
  }

  /** Returns `source` or `target`; waits while a switch blocks writers, usually for seconds. */
  async write() {
    for (;;) {
      const side = await this.side("write");
      if (side !== "none") return side;
      await new Promise((resolve) => setTimeout(resolve, 100));
      this.known = undefined;
    }
  }
}

/**
 * Returns an item as the application wrote it, or undefined for a tombstone. `keys` are its key attributes.
 * @param {Item} item @param {string[]} keys @returns {Item | undefined}
 */
export function visible(item, keys) {
  const { _weir: mark, ...own } = item;
  const isBare = Object.keys(own).every((name) => keys.includes(name));
  return isBare && mark?.M?.gone?.BOOL ? undefined : own;
}

/**
 * Returns the input of a PutItem that overwrites nothing but a tombstone. `keys` are the key attributes of this
 * table: with those of another table, the insert would overwrite. `always` is an attribute that every item of the
 * table has in addition to its `keys`, even an item that an UpdateItem created.
 * @param {string} table @param {Item} item @param {string[]} keys @param {string} always
 */
export function insert(table, item, keys, always) {
  if (keys.includes(always) || !Object.hasOwn(item, always))
    throw new TypeError(`\`${always}\` must be an attribute of the item beside its key`);
  for (const key of keys.filter((key) => !Object.hasOwn(item, key)))
    throw new TypeError(`\`${key}\` must be an attribute of the item: \`keys\` are the key attributes of \`${table}\``);
  return {
    TableName: table,
    Item: item,
    ConditionExpression: "attribute_not_exists(#key) OR (#mark.#gone = :true AND attribute_not_exists(#always))",
    ExpressionAttributeNames: { "#key": keys[0], "#mark": "_weir", "#gone": "gone", "#always": always },
    ExpressionAttributeValues: { ":true": { BOOL: true } },
  };
}
