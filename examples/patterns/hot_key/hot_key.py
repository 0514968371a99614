"""A hot key: writes to one key are throttled, and writes to its shards are not.

Start the store with `local-store --throughput enforce`. `weir` has to be in PATH: it stops the
store's clock, so that a second of the load is a second of the store on any machine.
"""

import atexit
import json
import pathlib
import subprocess

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError


def weir(*arguments):
    return subprocess.run(["weir", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


model = json.loads(pathlib.Path(__file__).with_name("model.json").read_text())
# Without retries, a throttled request is an error that this script can count.
dynamodb = boto3.client("dynamodb", config=Config(retries={"total_max_attempts": 1}))
for table in model["tables"]:
    dynamodb.create_table(**table)
    atexit.register(dynamodb.delete_table, TableName=table["TableName"])
    dynamodb.get_waiter("table_exists").wait(TableName=table["TableName"])

SHARDS, SECONDS, EVENTS, UNITS = 8, 3, 16, 125
EVENT = {"S": "x" * (UNITS * 1024 - 100)}  # 16 large events are as much as 2,000 small ones


def load(title, key_of):
    """Writes 2,000 units a second, and draws a bar for each second. Returns the written units."""
    print(f"\n{title}")
    weir("clock", "advance", "2m")  # no load: the used capacity is available again
    results = []
    for second in range(SECONDS):
        written = throttled = 0
        for event in range(EVENTS):
            item = {
                "match_key": {"S": key_of(event)},
                "event_id": {"S": f"e-{second}-{event:04}"},
                "happened": EVENT,
            }
            try:
                answer = dynamodb.put_item(
                    TableName="match-events", Item=item, ReturnConsumedCapacity="TOTAL"
                )
                written += answer["ConsumedCapacity"]["CapacityUnits"]
            except ClientError as error:
                assert error.response["Error"]["Code"] == "ThrottlingException", error
                throttled += UNITS
        bar = "█" * round(written / 50) + "░" * round(throttled / 50)
        print(f"  second {second + 1}  {bar}  {written:4.0f} written, {throttled:4} throttled")
        results.append(written)
        weir("clock", "advance", "1s")
    return results


weir("clock", "freeze")
atexit.register(weir, "clock", "resume")

# A partition admits 1,000 write units a second, and one key is always in one partition.
written = load("one key: final", lambda event: "final")
assert written == [1000] * SECONDS, "start the store with --throughput enforce"

# The store names the key. Its figures are averages over the last complete minute.
weir("clock", "advance", "1m")
print(weir("partitions", "hot", "match-events"), end="")
hottest = json.loads(weir("--output", "json", "partitions", "hot", "match-events"))
assert [entry["key"] for entry in hottest] == [{"match_key": {"S": "final"}}]

# The same load under eight keys, which the table's four partitions share.
written = load("eight keys: final#0 to final#7", lambda event: f"final#{event % SHARDS}")
assert written == [EVENTS * UNITS] * SECONDS
weir("clock", "advance", "1m")
hottest = json.loads(weir("--output", "json", "partitions", "hot", "match-events"))
shares = [entry["units_per_second"] for entry in hottest]
assert len(shares) == SHARDS and len(set(shares)) == 1
print("hot key: one key takes half of the load, eight shards take all of it, in equal shares")
