"""Probes how a local emulator of AWS implements the rules of event source mappings and streams.

    python tests/parity/probe.py NAME URL [RULE …]

Prints one line per probe: NAME, the rule's number, the observation, and whether AWS does the same.
Every probe has a table with a stream, a Python function that logs each event, a mapping, and writes.
`run` in this folder installs the emulators and prints all of their lines.
"""

import io
import json
import os
import sys
import tempfile
import time
import zipfile

import boto3
from botocore.config import Config

CODE = """
import json, os
def handler(event, context):
    with open(os.environ["OUT"], "a") as out:
        out.write(json.dumps(event) + "\\n")
    answer = {}
    if "window" in event:
        answer["state"] = {"count": str(int(event.get("state", {}).get("count", 0)) + len(event["Records"]))}
    items = [record["dynamodb"] for record in event["Records"]]
    for item in items:
        key = item["Keys"]["id"]["S"]
        if key.startswith("poison"):
            raise RuntimeError("poison")
    failures = [item["SequenceNumber"] for item in items if item["Keys"]["id"]["S"].startswith("report")]
    if any(item["Keys"]["id"]["S"].startswith("unknown") for item in items):
        failures = ["123"]
    if failures:
        answer["batchItemFailures"] = [{"itemIdentifier": failure} for failure in failures]
    return answer
"""


# DynamoDB's 15 minutes, and a margin.
ITERATOR_LIFE_SECONDS = 16 * 60


class Emulator:
    def __init__(self, name, url):
        self.name = name
        options = {
            "endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "test",
            "aws_secret_access_key": "test", "config": Config(retries={"max_attempts": 1}),
        }
        self.tables = boto3.client("dynamodb", **options)
        self.streams = boto3.client("dynamodbstreams", **options)
        self.functions = boto3.client("lambda", **options)
        self.roles = boto3.client("iam", **options)
        self.folder = tempfile.mkdtemp()
        self.count = 0
        self.early = None

    def table(self, *names):
        """Creates a table with a stream; its key is `id`, or a partition and a sort key of these names."""
        self.count += 1
        name = f"probe{self.count}"
        names = names or ["id"]
        self.tables.create_table(
            TableName=name, BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in names],
            KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in zip(names, ["HASH", "RANGE"])],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        self.tables.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1})
        return name

    def take_iterator(self):
        """Gets an iterator and its time, for the probe that needs an old iterator."""
        table = self.table()
        self.put(table, "early")
        arn = self.arn(table)
        shard = self.streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]
        answer = self.streams.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")
        self.early = (answer["ShardIterator"], time.time())

    def arn(self, table):
        return self.tables.describe_table(TableName=table)["Table"]["LatestStreamArn"]

    def put(self, table, key, **attributes):
        self.tables.put_item(TableName=table, Item={"id": {"S": key}, **attributes})

    def mapped(self, table, **settings):
        """Creates a function on the table's stream; returns a function that reads its events."""
        out = os.path.join(self.folder, table)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("index.py", CODE)
        try:
            role = self.roles.create_role(RoleName="probe", AssumeRolePolicyDocument="{}")
            self.role = role["Role"]["Arn"]
        except Exception:
            self.role = getattr(self, "role", "arn:aws:iam::000000000000:role/probe")
        self.functions.create_function(
            FunctionName=table, Runtime="python3.12", Handler="index.handler", Role=self.role,
            Code={"ZipFile": packed.getvalue()}, Environment={"Variables": {"OUT": out}}, Timeout=10,
        )
        self.mapping = self.functions.create_event_source_mapping(
            EventSourceArn=self.arn(table), FunctionName=table,
            **{"StartingPosition": "TRIM_HORIZON", "BatchSize": 100, **settings},
        )["UUID"]

        def events():
            if not os.path.exists(out):
                return []
            with open(out) as lines:
                # The last line may be incomplete.
                return [json.loads(line) for line in lines if line.endswith("\n")]

        return events


def keys(event):
    return [record["dynamodb"]["Keys"]["id"]["S"] for record in event["Records"]]


def wait(condition, seconds):
    end = time.time() + seconds
    while time.time() < end:
        if condition():
            return True
        time.sleep(0.25)
    return False


def one_partition(emulator):
    """Writes items of one partition, the first of which always fails, in ten lanes and batches of one."""
    table = emulator.table("partition", "id")
    for key in ["poison", *(f"item{number}" for number in range(20))]:
        emulator.put(table, key, partition={"S": "same"})
    return emulator.mapped(table, ParallelizationFactor=10, BatchSize=1)


def lanes(emulator):
    events = one_partition(emulator)
    if not wait(events, 20):
        return None, "the function is never invoked"
    passed = wait(lambda: any("poison" not in keys(event) for event in events()), 20)
    seen = "are delivered" if passed else "wait"
    return passed, f"while an item fails, other items of its partition {seen}"


def checkpoint(emulator):
    events = one_partition(emulator)
    if not wait(events, 20):
        return None, "the function is never invoked"
    wait(lambda: any("poison" not in keys(event) for event in events()), 20)
    emulator.functions.update_event_source_mapping(UUID=emulator.mapping, Enabled=False)
    time.sleep(5)
    before = len(events())
    emulator.functions.update_event_source_mapping(UUID=emulator.mapping, Enabled=True)
    again = wait(lambda: any("poison" in keys(event) for event in events()[before:]), 30)
    seen = "delivered again" if again else "passed over"
    return again, f"a failing record is {seen} when the mapping is disabled and enabled"


def last_page(emulator):
    table = emulator.table()
    for key in ["a", "b", "c"]:
        emulator.put(table, key)
    arn = emulator.arn(table)
    emulator.tables.update_table(TableName=table, StreamSpecification={"StreamEnabled": False})
    time.sleep(1.1)
    ended, found = True, 0
    for shard in emulator.streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        iterator = emulator.streams.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
        for _ in range(10):
            page = emulator.streams.get_records(ShardIterator=iterator)
            found += len(page["Records"])
            iterator = page.get("NextShardIterator")
            if not iterator:
                break
        ended = ended and not iterator
    seen = "ends without a next iterator" if ended else "has a next iterator for ever"
    return ended and found == 3, f"a disabled stream gives {found} of 3 records and {seen}"


def expiry(emulator):
    if emulator.early is None:
        return None, "no iterator could be had"
    time.sleep(max(0, emulator.early[1] + ITERATOR_LIFE_SECONDS - time.time()))
    try:
        emulator.streams.get_records(ShardIterator=emulator.early[0])
    except emulator.streams.exceptions.ExpiredIteratorException:
        return True, "an iterator expires after 15 minutes"
    return False, "an iterator that is older than 15 minutes is answered"


def partial_batch(emulator):
    table = emulator.table()
    for key in ["done", "report", "after"]:
        emulator.put(table, key)
    events = emulator.mapped(
        table, FunctionResponseTypes=["ReportBatchItemFailures"], MaximumRetryAttempts=2)
    if not wait(events, 20):
        return None, "the function is never invoked"
    wait(lambda: len(events()) > 1, 15)
    batches = [keys(event) for event in events()]
    if len(batches) == 1:
        return False, "the record that the answer names is not delivered again"
    return batches[1] == ["report", "after"], f"after {batches[0]} it delivers {batches[1]}"


def unknown_identifier(emulator):
    table = emulator.table()
    emulator.put(table, "first")
    emulator.put(table, "unknown")
    events = emulator.mapped(
        table, FunctionResponseTypes=["ReportBatchItemFailures"], MaximumRetryAttempts=2)
    if not wait(events, 20):
        return None, "the function is never invoked"
    again = wait(lambda: len(events()) > 1, 15)
    return again, "the whole batch is delivered again" if again else "the batch counts as done"


def bisect(emulator):
    table = emulator.table()
    for key in ["a", "b", "poison", "d"]:
        emulator.put(table, key)
    events = emulator.mapped(table, BisectBatchOnFunctionError=True, MaximumRetryAttempts=1)
    if not wait(events, 20):
        return None, "the function is never invoked"
    wait(lambda: any(keys(event) == ["d"] for event in events()), 20)
    sizes = [len(event["Records"]) for event in events()]
    return 1 in sizes and 2 in sizes, f"batch sizes {sizes[:8]}"


def retries_end(emulator):
    table = emulator.table()
    emulator.put(table, "poison")
    events = emulator.mapped(table, MaximumRetryAttempts=2)
    if not wait(events, 20):
        return None, "the function is never invoked"
    wait(lambda: len(events()) >= 3, 60)
    time.sleep(12)
    emulator.put(table, "next")
    passed = wait(lambda: any(keys(event) == ["next"] for event in events()), 20)
    attempts = sum("poison" in keys(event) for event in events())
    if not passed:
        return False, f"after {attempts} attempts it goes on, and the next record waits"
    return attempts == 3, f"{attempts} attempts, then the next record is delivered"


def filtered(emulator, pattern, **attributes):
    """Returns whether an item passes a pattern; None if even the control fails, which passes another."""
    table = emulator.table()
    emulator.put(table, "asked", **attributes)
    emulator.put(table, "control")
    control = {"dynamodb": {"Keys": {"id": {"S": ["control"]}}}}
    filters = [{"Pattern": json.dumps(found)} for found in [pattern, control]]
    events = emulator.mapped(table, FilterCriteria={"Filters": filters})
    if not wait(lambda: any("control" in keys(event) for event in events()), 20):
        return None
    return any("asked" in keys(event) for event in events())


def numeric_filter(emulator):
    pattern = {"dynamodb": {"NewImage": {"n": {"N": [{"numeric": [">", 100]}]}}}}
    passed = filtered(emulator, pattern, n={"N": "500"})
    if passed is None:
        return None, "the function is never invoked"
    return not passed, f"numeric matches {'a' if passed else 'no'} DynamoDB number"


def exists_filter(emulator):
    pattern = {"dynamodb": {"NewImage": {"present": [{"exists": False}]}}}
    passed = filtered(emulator, pattern, present={"S": "x"})
    if passed is None:
        return None, "the function is never invoked"
    return passed, f"exists: false on an attribute that is there {'matches' if passed else 'does not match'}"


def tumbling(emulator):
    table = emulator.table()
    emulator.put(table, "a")
    events = emulator.mapped(table, TumblingWindowInSeconds=5)
    if not wait(events, 20):
        return None, "the function is never invoked"
    has = "window" in events()[0]
    return has, "events have a window" if has else "events have no window"


def latest(emulator):
    table = emulator.table()
    emulator.put(table, "before")
    events = emulator.mapped(table, StartingPosition="LATEST")
    time.sleep(5)
    emulator.put(table, "after")
    if not wait(lambda: any("after" in keys(event) for event in events()), 20):
        return None, "the function is never invoked"
    passed_over = not any("before" in keys(event) for event in events())
    return passed_over, f"LATEST {'passes over' if passed_over else 'delivers'} what was there before"


def event_bytes(emulator):
    table = emulator.table()
    for number in range(20):
        emulator.put(table, f"large{number}", text={"S": "x" * 390_000})
    events = emulator.mapped(table, BatchSize=100)
    if not wait(lambda: sum(len(event["Records"]) for event in events()) >= 20, 40):
        return None, "not all of 20 large records are delivered" if events() else "the function is never invoked"
    largest = max(len(json.dumps(event)) for event in events())
    return largest <= 6 * 1024 * 1024, f"the largest event has {largest / 1e6:.1f} MB"


def records_of(emulator, arn):
    found = []
    for shard in emulator.streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        iterator = emulator.streams.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
        for _ in range(4):
            page = emulator.streams.get_records(ShardIterator=iterator)
            found += page["Records"]
            iterator = page.get("NextShardIterator")
            if not iterator:
                break
    return found


def no_op(emulator):
    table = emulator.table()
    for _ in range(3):
        emulator.put(table, "same", v={"S": "x"})
    count = len(records_of(emulator, emulator.arn(table)))
    return count == 1, f"three equal puts leave {count} records"


def new_label(emulator):
    table = emulator.table()
    before = emulator.arn(table)
    emulator.tables.update_table(TableName=table, StreamSpecification={"StreamEnabled": False})
    time.sleep(1.1)
    emulator.tables.update_table(
        TableName=table,
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"})
    after = emulator.arn(table)
    return before != after, "a stream that is enabled again has a new ARN" if before != after else "it keeps its ARN"


def shard_form(emulator):
    table = emulator.table()
    emulator.put(table, "a")
    described = emulator.streams.describe_stream(StreamArn=emulator.arn(table))["StreamDescription"]
    ids = [shard["ShardId"] for shard in described["Shards"]]
    return len(ids) > 1, f"a new on-demand table has {len(ids)} open shard{'s' if len(ids) != 1 else ''}"


PROBES = [
    ("1", checkpoint), ("2", lanes), ("3", shard_form), ("4", last_page), ("6", latest), ("7", partial_batch), ("7", unknown_identifier), ("8", bisect),
    ("8", retries_end), ("9", numeric_filter), ("9", exists_filter), ("10", tumbling),
    ("11", event_bytes), ("12", no_op), ("13", new_label),
    ("5", expiry),
]


def main():
    name, url, *wanted = sys.argv[1:]
    emulator = Emulator(name, url)
    if not wanted or "5" in wanted:
        try:
            emulator.take_iterator()
        except Exception as error:  # the probe reports that there is no iterator
            print(f"{name}: {error}", file=sys.stderr)
    for rule, probe in PROBES:
        if wanted and rule not in wanted:
            continue
        try:
            same, seen = probe(emulator)
        except Exception as error:  # a refusal by an emulator is a finding too
            first_line = str(error).partition("\n")[0]
            same, seen = None, f"{type(error).__name__}: {first_line[:120]}"
        word = {True: "same", False: "differs", None: "no answer"}[same]
        print(f"{name}\t{rule}\t{probe.__name__}\t{word}\t{seen}", flush=True)


main()
