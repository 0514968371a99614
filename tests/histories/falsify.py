"""Falsifies one answer of each exported history: falsify.py FOLDER TARGET.

Each falsified history is a violation, so a checker that accepts one is useless. Of a register, a read returns
the value before the one that was stored before the read began. Of the transactions, a read of several items
sees one write of a transaction, and not its other write. Prints the histories that offer no such answer.
"""

import json
import pathlib
import sys


def requests(lines):
    """Returns the acknowledged requests, each as the places of its two lines."""
    begun, found = {}, []
    for place, line in enumerate(lines):
        if line["type"] == "invoke":
            begun[line["process"]] = place
        elif line["type"] == "ok":
            found.append((begun[line["process"]], place))
    return found


def falsify_register(lines):
    """Makes the last possible read return the previous value. Returns false if there is no such read."""
    answered = requests(lines)
    # For each value: the place where its write was acknowledged, and the value that it replaced.
    stored = {}
    for _, end in answered:
        if lines[end]["f"] == "cas" and None not in lines[end]["value"]:
            before, value = lines[end]["value"]
            stored[value] = (end, before)
    for begin, end in reversed(answered):
        if lines[end]["f"] != "read":
            continue
        acknowledged, before = stored.get(lines[end]["value"], (begin, None))
        if acknowledged < begin:
            lines[end]["value"] = before
            return True
    return False


def falsify_transactions(lines):
    """Makes the last possible read see a transaction in part. Returns false if there is no such read."""
    acknowledged = [lines[end]["value"] for _, end in requests(lines)]
    # For each written version: the transaction, and the version that it replaced, if the transaction shows it.
    writers = {}
    for number, value in enumerate(acknowledged):
        replaced = {key: version for kind, key, version in value if kind == "r"}
        for kind, key, version in value:
            if kind == "w":
                writers[key, version] = (number, key in replaced, replaced.get(key))
    for value in reversed(acknowledged):
        if any(kind == "w" for kind, _, _ in value):
            continue
        read = [(micro, writers.get((micro[1], micro[2]))) for micro in value]
        for micro, writer in read:
            if writer is None or not writer[1]:
                continue
            if any(other is not micro and also and also[0] == writer[0] for other, also in read):
                micro[2] = writer[2]
                return True
    return False


def main(folder, target):
    for path in sorted(folder.glob("**/*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        is_register = path.parent.name == "registers"
        if not (falsify_register if is_register else falsify_transactions)(lines):
            print(f"{path.relative_to(folder)}: no answer to falsify")
            continue
        to = target / path.relative_to(folder)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text("".join(json.dumps(line) + "\n" for line in lines))


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
