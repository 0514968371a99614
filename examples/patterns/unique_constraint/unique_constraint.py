"""A unique constraint: a transaction writes an item, and a second item whose key is the unique value."""

import atexit
import json
import pathlib

import boto3

model = json.loads(pathlib.Path(__file__).with_name("model.json").read_text())
dynamodb = boto3.client("dynamodb")
for table in model["tables"]:
    dynamodb.create_table(**table)
    atexit.register(dynamodb.delete_table, TableName=table["TableName"])
    dynamodb.get_waiter("table_exists").wait(TableName=table["TableName"])
dynamodb.batch_write_item(RequestItems=model["items"])

client = boto3.resource("dynamodb").meta.client
IS_NEW = "attribute_not_exists(id)"


def register(account, email):
    """Creates an account, unless another one has the address. Returns the write units."""
    answer = client.transact_write_items(
        TransactItems=[
            {
                "Put": {
                    "TableName": "accounts",
                    "Item": {"id": f"ACCOUNT#{account}", "email": email},
                    "ConditionExpression": IS_NEW,
                }
            },
            {
                "Put": {
                    "TableName": "accounts",
                    "Item": {"id": f"EMAIL#{email}", "account": account},
                    "ConditionExpression": IS_NEW,
                }
            },
        ],
        ReturnConsumedCapacity="TOTAL",
    )
    return answer["ConsumedCapacity"][0]["CapacityUnits"]


# Two items, and a transaction costs twice as much as plain writes.
assert register("a-3", "eva@example.com") == 4

# A taken address cancels the transaction; the reasons are in the order of its requests.
try:
    register("a-4", "ana@example.com")
    raise SystemExit("two accounts have one address")
except client.exceptions.TransactionCanceledException as error:
    codes = [reason["Code"] for reason in error.response["CancellationReasons"]]
assert codes == ["None", "ConditionalCheckFailed"]
assert "Item" not in client.get_item(TableName="accounts", Key={"id": "ACCOUNT#a-4"})

# The value's item also shows which account has the address, without an index.
answer = client.get_item(
    TableName="accounts", Key={"id": "EMAIL#ana@example.com"}, ReturnConsumedCapacity="TOTAL"
)
assert answer["Item"]["account"] == "a-1"
assert answer["ConsumedCapacity"]["CapacityUnits"] == 0.5

print("unique constraint: 4 write units to register; a taken address writes nothing")
