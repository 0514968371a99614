"""What an application does while `weir migrate` moves its table: it asks which side to use, passes over
tombstones, and inserts where a tombstone stands. Copy this file; docs/migration.md explains it.

    route = Route(boto3.client("dynamodb"), "shop")
    table = {"source": "orders", "target": "shop"}[route.write()]
    dynamodb.put_item(**insert(table, item, keys=["pk", "sk"]))
"""

import time


class Route:
    """Asks for the route at most once in `seconds`. Keep that at half of the plan's `gate_seconds`, and the
    time-out of a write below the other half: a write must end before its route is too old."""

    def __init__(self, dynamodb, migration, control="weir-migrations", seconds=1.0):
        self.dynamodb, self.control, self.seconds = dynamodb, control, seconds
        self.key = {"migration": {"S": migration}, "entry": {"S": "ROUTE"}}
        self.sides, self.asked = None, 0.0

    def side(self, use):
        if self.sides is None or time.monotonic() - self.asked > self.seconds:
            self.asked = time.monotonic()
            answer = self.dynamodb.get_item(TableName=self.control, Key=self.key, ConsistentRead=True)
            self.sides = answer.get("Item", {})
        return self.sides.get(use, {"S": "source"})["S"]

    def read(self):
        """Returns `source` or `target`."""
        return self.side("read")

    def write(self):
        """Returns `source` or `target`; waits while a switch blocks writers, usually for seconds."""
        while (side := self.side("write")) == "none":
            time.sleep(0.1)
            self.sides = None
        return side


def visible(item, keys):
    """Returns an item as the application wrote it, or None for a tombstone. `keys` are its key attributes."""
    own = {name: value for name, value in item.items() if name != "_weir"}
    gone = item.get("_weir", {}).get("M", {}).get("gone", {}).get("BOOL", False)
    return None if gone and own.keys() <= set(keys) else own


def insert(table, item, keys):
    """Returns the arguments of a PutItem that overwrites nothing but a tombstone: its condition replaces
    `attribute_not_exists(pk)`. `keys` are the key attributes of the table."""
    own = [name for name in item if name not in keys]
    names = {"#key": keys[0], "#mark": "_weir", "#gone": "gone"}
    names.update((f"#own{number}", name) for number, name in enumerate(own))
    bare = ["#mark.#gone = :true", *(f"attribute_not_exists(#own{number})" for number in range(len(own)))]
    return {
        "TableName": table,
        "Item": item,
        "ConditionExpression": f"attribute_not_exists(#key) OR ({' AND '.join(bare)})",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {":true": {"BOOL": True}},
    }
