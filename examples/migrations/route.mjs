// What an application does while `weir migrate` moves its table: it asks which side to use, passes over
// tombstones, and inserts where a tombstone stands. Copy this file; docs/migration.md explains it.
//
//     const route = new Route(new DynamoDB({}), "shop");
//     const table = { source: "orders", target: "shop" }[await route.write()];
//     await dynamodb.putItem(insert(table, item, ["pk", "sk"]));

/** @typedef {Record<string, import("@aws-sdk/client-dynamodb").AttributeValue>} Item */

/**
 * Asks for the route at most once in `seconds`. Keep that at half of the plan's `gate_seconds`, and the
 * time-out of a write below the other half: a write must end before its route is too old.
 */
export class Route {
  /**
   * @param {import("@aws-sdk/client-dynamodb").DynamoDB} dynamodb
   * @param {string} migration
   */
  constructor(dynamodb, migration, { control = "weir-migrations", seconds = 1 } = {}) {
    Object.assign(this, { dynamodb, control, seconds, sides: undefined, asked: 0 });
    this.key = { migration: { S: migration }, entry: { S: "ROUTE" } };
  }

  async side(use) {
    if (!this.sides || performance.now() - this.asked > this.seconds * 1000) {
      this.asked = performance.now();
      const request = { TableName: this.control, Key: this.key, ConsistentRead: true };
      this.sides = (await this.dynamodb.getItem(request)).Item ?? {};
    }
    return this.sides[use]?.S ?? "source";
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
      this.sides = undefined;
    }
  }
}

/**
 * Returns an item as the application wrote it, or undefined for a tombstone. `keys` are its key attributes.
 * @param {Item} item
 * @param {string[]} keys
 * @returns {Item | undefined}
 */
export function visible(item, keys) {
  const { _weir: mark, ...own } = item;
  const isBare = Object.keys(own).every((name) => keys.includes(name));
  return isBare && mark?.M?.gone?.BOOL ? undefined : own;
}

/**
 * Returns the input of a PutItem that overwrites nothing but a tombstone: its condition replaces
 * `attribute_not_exists(pk)`. `keys` are the key attributes of the table.
 * @param {string} table
 * @param {Item} item
 * @param {string[]} keys
 */
export function insert(table, item, keys) {
  const own = Object.keys(item).filter((name) => !keys.includes(name));
  const names = { "#key": keys[0], "#mark": "_weir", "#gone": "gone" };
  own.forEach((name, number) => (names[`#own${number}`] = name));
  const bare = ["#mark.#gone = :true", ...own.map((_, number) => `attribute_not_exists(#own${number})`)];
  return {
    TableName: table,
    Item: item,
    ConditionExpression: `attribute_not_exists(#key) OR (${bare.join(" AND ")})`,
    ExpressionAttributeNames: names,
    ExpressionAttributeValues: { ":true": { BOOL: true } },
  };
}
