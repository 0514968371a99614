"""The code that an application needs while `weir migrate` moves its table. Copy this file; docs/migration.md explains it.

    tables = {"source": ("orders", ["orderID"]), "target": ("shop", ["pk", "sk"])}  # each side has its own key
    table, keys = tables[route.write()]  # route = Route(dynamodb, "shop"); `control=` if it is not weir-migrations
    dynamodb.put_item(**insert(table, item, keys, always="total"))  # an item of that side's shape
"""

import time


class Route:
    """The route of a migration, cached for `seconds` since the request for it: half of the plan's `gate_seconds`.
    The time-out of a write, including retries, must be below the other half. Methods raise errors of the request:
    ResourceNotFoundException before the first `weir migrate start`, which creates the control table."""

    def __init__(self, dynamodb, migration, control="weir-migrations", seconds=1.0):
        self.dynamodb, self.control, self.seconds = dynamodb, control, seconds
        self.key = {"migration": {"S": migration}, "entry": {"S": "ROUTE"}}
        self.known = None

    def side(self, use):
        known = self.known
        while known is None or time.monotonic() - known[0] > self.seconds:
            asked = time.monotonic()
            answer = self.dynamodb.get_item(TableName=self.control, Key=self.key, ConsistentRead=True)
            known = self.known = (asked, answer.get("Item", {}))
        return known[1].get(use, {"S": "source"})["S"]

    def read(self):
        """Returns `source` or `target`."""
        return self.side("read")

    def write(self):
        """Returns `source` or `target`; waits while a switch blocks writers, usually for seconds."""
        while (side := self.side("write")) == "none":
            time.sleep(0.1)
            self.known = None
        return side


def visible(item, keys):
    """Returns an item as the application wrote it, or None for a tombstone. `keys` are its key attributes."""
    own = {name: value for name, value in item.items() if name != "_weir"}
    gone = item.get("_weir", {}).get("M", {}).get("gone", {}).get("BOOL", False)
    return None if gone and own.keys() <= set(keys) else own


def insert(table, item, keys, always):
    """Returns the arguments of a PutItem that overwrites nothing but a tombstone. `keys` are the key attributes of
    this table: with those of another table, the insert would overwrite. `always` is an attribute that every item of
    the table has in addition to its `keys`, even an item that an UpdateItem created."""
    if always in keys or always not in item:
        raise ValueError(f"`{always}` must be an attribute of the item beside its key")
    for key in keys:
        if key not in item:
            raise ValueError(f"`{key}` must be an attribute of the item: `keys` are the key attributes of `{table}`")
    return {
        "TableName": table,
        "Item": item,
        "ConditionExpression": "attribute_not_exists(#key) OR (#mark.#gone = :true AND attribute_not_exists(#always))",
        "ExpressionAttributeNames": {"#key": keys[0], "#mark": "_weir", "#gone": "gone", "#always": always},
        "ExpressionAttributeValues": {":true": {"BOOL": True}},
    }
