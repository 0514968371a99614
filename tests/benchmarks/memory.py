"""Measures the memory of each function with the largest batches: 10,000 records, or Lambda's limit of 6 MB.

Runs `weir up` with the project's template, in which each batch may have 10,000 records and waits for
them. Writes films, edits them and lets them expire, while a migration copies them to another table;
casts votes, and renames a product of many order lines. Then reports for each function the peak memory
of its processes and the size of its largest batch, from the functions' own logs. With `--slots N` it
measures only the function `counters`, whose 400 counters have N slots each: each batch contains all.
`docs/development/benchmarks.md` explains how to run and read it.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "real_data"))

from running import WEIR, Running, template_text  # noqa: E402

FUNCTIONS = ["archive", "versions", "counters", "fan-out", "migration"]
WINDOW_SECONDS = 15
COUNTERS = 400
EXPIRE_SECONDS = 3_600
PLAN = """
migration: film-copies
kind: restructure
from:
  - table: movies
    items:
      - to: film-copies
        transform: '. + {kind: "film"}'
        key: {pk: 'FILM#{title}', sk: 'YEAR#{year}'}
"""


def template(folder, slots=None):
    """Returns the project's template with the largest batches."""
    text = re.sub(r"\n +MaximumBatchingWindowInSeconds: .*", "", template_text(folder))
    text = re.sub(
        r"\n( +)BatchSize: (500|1000)\b",
        rf"\n\1BatchSize: 10000\n\1MaximumBatchingWindowInSeconds: {WINDOW_SECONDS}", text,
    )
    if slots:
        text = text.replace("SLOT_COUNT: !Ref SlotCount", f'SLOT_COUNT: "{slots}"')
    path = folder / "template.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def polls(weir, slots, rounds):
    """Writes every slot of every counter several times, in each round one slot of all counters after another."""
    path = weir.path / "polls.ndjson"
    for votes in range(1, rounds + 1):
        with open(path, "w", encoding="utf-8") as file:
            for slot in range(slots):
                for counter in range(COUNTERS):
                    file.write(f'{{"slot":"poll-{counter}#{slot}","votes":{votes}}}\n')
        weir.load("--table", "votes", "--format", "ndjson", path)


def films(weir, name, count, edit, expires_at):
    """Returns films of about 450 bytes; loading them again with another edit changes each."""
    path = weir.path / name
    with open(path, "w", encoding="utf-8") as file:
        for number in range(count):
            film = {
                "year": 1900 + number % 120, "title": f"Film {number}", "edit": edit, "expires_at": expires_at,
                "info": {"rating": number % 100, "plot": "x" * 240, "genres": ["Drama", "Sport"], "rank": number},
            }
            file.write(json.dumps(film) + "\n")
    weir.load("--table", "movies", "--format", "ndjson", path)


def migrate(weir):
    """Starts a migration of the films before there are any, so that all of them come through the stream."""
    weir.dynamodb.create_table(
        TableName="film-copies", BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    )
    plan = weir.path / "plan.yaml"
    plan.write_text(PLAN, encoding="utf-8")
    command = [WEIR, "migrate", "start", plan, "--endpoint", weir.dynamodb_url]
    subprocess.run(command, cwd=weir.path, check=True, stdout=subprocess.DEVNULL)


def lines(weir, count):
    weir.dynamodb.put_item(TableName="products", Item={"productID": {"N": "1"}, "productName": {"S": "first"}})
    path = weir.path / "lines.csv"
    rows = (f"{order},1,{order % 50 + 1}\n" for order in range(count))
    path.write_text("orderID,productID,quantity\n" + "".join(rows), encoding="utf-8")
    weir.load("--table", "order-lines", "--format", "csv", path, "--types", "orderID:N,productID:N,quantity:N")
    weir.dynamodb.update_item(
        TableName="products", Key={"productID": {"N": "1"}}, UpdateExpression="SET productName = :name",
        ExpressionAttributeValues={":name": {"S": "second"}},
    )


def seen(weir):
    """Returns (peak MB, records of the largest batch) by function, from the logs."""
    memory, records = collections.Counter(), collections.Counter()
    for log in (weir.path / ".weir").rglob("*.log*"):
        text = log.read_text(encoding="utf-8", errors="replace")
        for name in re.findall(r'"function":"([a-z-]+)"', text)[:1]:
            for used in re.findall(r"Max Memory Used: (\d+) MB", text):
                memory[name] = max(memory[name], int(used))
            for batch in re.findall(r'"records":(\d+)', text):
                records[name] = max(records[name], int(batch))
    return memory, records


def wait_for_silence(weir, seconds):
    """Waits until the functions' logs have not grown for some time."""
    def size():
        return sum(log.stat().st_size for log in (weir.path / ".weir").rglob("*.log*"))

    last, since = size(), time.monotonic()
    deadline = time.monotonic() + seconds
    while time.monotonic() - since < 2 * WINDOW_SECONDS:
        if time.monotonic() > deadline:
            raise AssertionError(f"the functions are still running after {seconds} s")
        time.sleep(1)
        if size() != last:
            last, since = size(), time.monotonic()


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--items", type=int, default=20_000)
    arguments.add_argument("--seconds", type=int, default=900, help="time that the functions may take")
    arguments.add_argument("--slots", type=int, help="slots of each counter; measures only the function counters")
    arguments = arguments.parse_args()
    count = arguments.items
    if arguments.slots:
        with Running(template=lambda folder: template(folder, arguments.slots)) as weir:
            polls(weir, arguments.slots, 2)
            wait_for_silence(weir, arguments.seconds)
            memory, records = seen(weir)
        print(f"counters, {COUNTERS} of {arguments.slots} slots: peak {memory['counters']} MB, largest batch {records['counters']}")
        return
    with Running(template=template) as weir:
        later = weir.clock({"advance_ms": 0})["now_ms"] // 1000 + EXPIRE_SECONDS
        migrate(weir)
        films(weir, "films.ndjson", count, 0, later)
        films(weir, "edits.ndjson", count, 1, later)
        command = [WEIR, "counters", "--endpoint", weir.dynamodb_url, "generate", "--votes", str(2 * count), "--seed", "7"]
        subprocess.run(command, cwd=weir.path, check=True, stdout=subprocess.DEVNULL)
        lines(weir, count)
        wait_for_silence(weir, arguments.seconds)
        weir.advance_clock(EXPIRE_SECONDS + 60)
        wait_for_silence(weir, arguments.seconds)
        memory, records = seen(weir)
    print(f"{'':12}{'peak MB':>10}{'largest batch':>16}")
    for name in FUNCTIONS:
        print(f"{name:12}{memory[name]:>10}{records[name]:>16}")


if __name__ == "__main__":
    main()
