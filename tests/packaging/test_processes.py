"""Tests how the fixtures' programs are emptied, and how they end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import boto3
import pytest

from weir_dynamodb.testing import Store, Up, WeirError

PATIENCE_SECONDS = 20
# The maximum of time for emptying between two tests on a busy machine; a quiet machine needs a thirtieth of it.
EMPTY_SECONDS_MAX = 0.05
TABLE = {
    "BillingMode": "PAY_PER_REQUEST",
    "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
    "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
}
HOLDER = """
import sys, time
from weir_dynamodb.testing import Store, Up
store, up = Store(), Up("template.yaml")
print(store.id, up.id, flush=True)
time.sleep(600)
"""


def children(process):
    """Returns the child processes of a process, on Linux."""
    listed = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def is_alive(process):
    """Returns whether a process runs; a zombie process does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False)
    return state.stdout.strip()[:1] not in ("", "Z")


def ends(process):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while is_alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_emptying_takes_milliseconds(weir_store):
    dynamodb = boto3.client("dynamodb")
    times = []
    for _ in range(11):
        for number in range(3):
            dynamodb.create_table(TableName=f"table-{number}", **TABLE)
            dynamodb.put_item(TableName=f"table-{number}", Item={"id": {"S": "ada"}})
        began = time.perf_counter()
        assert weir_store.empty() == 3
        times.append(time.perf_counter() - began)
    print(f"emptied in {sorted(times)[5] * 1000:.1f} ms (median), {max(times) * 1000:.1f} ms at most")
    assert sorted(times)[5] < EMPTY_SECONDS_MAX


def test_everything_ends_when_the_tests_are_killed(tmp_path):
    # Killed programs leave their folders, so these are in a folder that pytest removes.
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parent, env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        started = [int(process) for process in holder.stdout.readline().split()]
        started += [child for process in started for child in children(process)]
        assert len(started) >= 2 and all(is_alive(process) for process in started)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert all([ends(process) for process in started])


def test_stop_ends_the_processes_and_removes_their_folders():
    with Store() as store, Up("template.yaml") as up:
        assert up.weir("status").returncode == 0
    for stopped in (store, up):
        assert not is_alive(stopped.id) and not stopped.folder.exists()


def test_a_template_that_cannot_run_says_why(tmp_path):
    broken = tmp_path / "template.yaml"
    broken.write_text("Resources: {T: {Type: AWS::DynamoDB::Table}}")
    with pytest.raises(WeirError, match="KeySchema"):
        Up(broken)


def test_what_a_function_gives_up_ends_the_wait(weir_up, tmp_path):
    template = (Path(__file__).parent / "template.yaml").read_text()
    broken = tmp_path / "template.yaml"
    broken.write_text(template.replace("SLOT_VALUE: votes", "SLOT_VALUE: ''"))
    up = weir_up(broken)
    boto3.client("dynamodb").put_item(
        TableName="votes", Item={"slot": {"S": "poll#0"}, "votes": {"N": "1"}}
    )
    with pytest.raises(WeirError, match="discarded") as raised:
        up.settle()
    told = str(raised.value)
    assert "the last lines of CountersFunction:" in told and "SLOT_VALUE is not set" in told, told
