"""Tests `weir mcp` with the official client of the Model Context Protocol, on a `weir up` whose filter drops a record.

Tries both kinds of handshake, and checks that standard output has only the protocol."""

import asyncio
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import boto3
from mcp import Client, ClientSession, MCPError, StdioServerParameters, stdio_client

WEIR = os.environ.get("WEIR") or str(Path(__file__).resolve().parents[2] / "target/debug/weir")
TEMPLATE = """Transform: AWS::Serverless-2016-10-31
Resources:
  Pets:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: pets
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: id, AttributeType: S}]
      KeySchema: [{AttributeName: id, KeyType: HASH}]
      StreamSpecification: {StreamViewType: NEW_AND_OLD_IMAGES}
  Feed:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: python3.13
      CodeUri: code
      Handler: app.handler
      Events:
        Change:
          Type: DynamoDB
          Properties:
            Stream: !GetAtt Pets.StreamArn
            StartingPosition: TRIM_HORIZON
            FunctionResponseTypes: [ReportBatchItemFailures]
            FilterCriteria: {Filters: [{Pattern: '{"eventName":["REMOVED"]}'}]}
"""
CODE = 'def handler(event, context):\n    return {"batchItemFailures": []}\n'
READERS = {"pipelines", "stream", "record", "filter"}
CHANGERS = {"redrive", "clock_advance", "clock_sweep"}

# The store is the one of `weir up`, not that of the other clients.
environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_ENDPOINT_URL")}
calls = 0


def server(*flags, cwd):
    return StdioServerParameters(command=WEIR, args=["mcp", *flags], env=environment, cwd=cwd)


async def call(session, name, /, fails=False, **arguments):
    global calls
    calls += 1
    result = await session.call_tool(name, arguments)
    assert bool(result.is_error) == fails, (name, arguments, result)
    [content] = result.content
    return json.loads(content.text)


async def pages(session, key):
    """Finds out what happened to a record, from the mappings to the record. Returns its sequence number."""
    deadline = time.monotonic() + 60
    while True:
        pipelines = await call(session, "pipelines")
        assert pipelines["schema"] == "weir.console.pipelines/v1", pipelines
        counted = [(mapping["figures"] or {}).get("filtered") for mapping in pipelines["mappings"]]
        if counted == [1]:
            break
        assert time.monotonic() < deadline, pipelines
        await asyncio.sleep(0.2)
    stream = await call(session, "stream", table="pets", key=key, limit=5)
    [record] = stream["records"]
    explained = await call(session, "record", record=record["sequence"], table="pets")
    assert "REMOVED" in json.dumps(explained["explanation"]), explained
    tried = await call(session, "filter", table="pets", pattern={"eventName": ["INSERT"]})
    assert tried["is_run"] and len(tried["records"]) == 1, tried
    return record["sequence"]


async def every_page(session, names, sequence):
    """Checks that each tool that reads returns the JSON twin of its page. This store lacks some of their data."""
    missing = {"migration", "counters"}
    arguments = {
        "record": {"record": sequence}, "filter": {"table": "pets", "pattern": {"eventName": ["INSERT"]}},
        "table": {"table": "pets"}, "item": {"table": "pets", "key": {"id": {"S": "rex"}}},
        "partitions": {"table": "pets"}, "migration": {"name": "none"},
    }
    for name in sorted(names):
        answer = await call(session, name, fails=name in missing, **arguments.get(name, {}))
        assert answer["schema"].startswith("weir.console."), (name, answer)
    found = await call(session, "item", **arguments["item"])
    assert found["found"]["item"] == {"id": {"S": "rex"}}, found


async def errors(session):
    """Checks that an error says what is wrong, where, and what to write instead."""
    for name, arguments, kind, message in [
        ("stream", {"limit": 101}, "BadInput", "limit: `101` is not a number in the allowed range; write instead: 1 to 100"),
        ("stream", {"limit": "5"}, "BadInput", "limit: it is a string; write instead: a whole number from 1 to 100"),
        ("stream", {"tabel": "pets"}, "BadInput", "`stream` has no argument `tabel`; write instead: table, key, limit"),
        ("stream", {"table": "dogs"}, "NotFound", "a table `dogs` with a stream does not exist"),
        ("record", {}, "BadInput", "record: not given"),
        ("filter", {"table": "pets", "pattern": "{"}, "BadInput", "pattern: it is not JSON"),
    ]:
        error = await call(session, name, fails=True, **arguments)
        assert error["error"] == kind and message in error["message"], error
    try:
        await session.call_tool("erase", {})
    except MCPError as error:
        assert "unknown tool `erase`; use one of pipelines" in str(error), error
    else:
        raise AssertionError("an unknown tool")


async def reads(folder, data):
    """An older client, which begins with `initialize`, started in another folder."""
    with tempfile.TemporaryFile("w+") as log:
        async with stdio_client(server("--directory", str(data), cwd=folder), errlog=log) as (read, write):
            async with ClientSession(read, write) as session:
                opened = await session.initialize()
                assert opened.server_info.name == "weir" and "pipelines" in opened.instructions, opened
                listed = {tool.name: tool for tool in (await session.list_tools()).tools}
                assert READERS <= set(listed) and not CHANGERS & set(listed), sorted(listed)
                assert all(tool.annotations.read_only_hint for tool in listed.values())
                schema = listed["record"].input_schema
                assert schema["required"] == ["record"] and schema["additionalProperties"] is False, schema
                sequence = await pages(session, {"id": "rex"})
                await every_page(session, listed, sequence)
                await errors(session)
                refused = await call(session, "clock_advance", fails=True, by="1h")
                assert "--allow-writes" in refused["message"], refused


async def writes(folder):
    """A client of the newest protocol, started in the folder of `weir up`."""
    async with Client(server("--allow-writes", cwd=folder)) as client:
        listed = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        assert READERS | CHANGERS <= set(listed), sorted(listed)
        advance, sweep = listed["clock_advance"], listed["clock_sweep"]
        assert advance.destructive_hint and not advance.idempotent_hint and not advance.read_only_hint
        assert sweep.destructive_hint and sweep.idempotent_hint
        done = await call(client, "clock_advance", by="1d")
        assert done["done"].startswith("the clock shows "), done
        done = await call(client, "clock_sweep")
        assert done["done"] == "0 expired items deleted", done
        wrong = await call(client, "clock_advance", fails=True, by="2h")
        assert "by: `2h` is not a supported duration; write instead: 1h or 1d" in wrong["message"], wrong
        missing = await call(client, "redrive", fails=True, object="no/such/object")
        assert missing["message"], missing


def raw(folder):
    """Checks that standard output has only lines of the protocol, and that the server ends with its input, but not
    because of garbage."""
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "pipelines"}},
    ]
    lines = [json.dumps(message) for message in messages]
    lines[2:2] = ["this is not JSON", "x" * (2 * 1024 * 1024)]
    done = subprocess.run(
        [WEIR, "mcp"], cwd=folder, env={**environment, "WEIR_LOG": "debug"}, timeout=60,
        input="\n".join(lines) + "\n", capture_output=True, text=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2] and done.returncode == 0, done
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    ended = subprocess.run([WEIR, "mcp"], cwd=folder, env=environment, timeout=60,
                           stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, ""), ended


def refusals(folder):
    """Checks that without a store, the reason is on standard error."""
    for flags, reason in [
        ([], "start `weir up` in this folder, or name a store with --endpoint URL; this folder is "),
        (["--directory", str(folder)], "no `weir up` runs with the data folder"),
        (["--directory", "nowhere"], "--directory: `nowhere`: "),
        (["--endpoint", "127.0.0.1:8000"], "has no scheme: write http://127.0.0.1:8000"),
    ]:
        done = subprocess.run([WEIR, "mcp", *flags], cwd=folder, env=environment, timeout=60,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 1 and done.stdout == "" and reason in done.stderr, (flags, done)


def main():
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as elsewhere:
        refusals(elsewhere)
        folder = Path(name)
        (folder / "code").mkdir()
        (folder / "code/app.py").write_text(CODE)
        (folder / "template.yaml").write_text(TEMPLATE)
        log = (folder / "log").open("w+")
        up = subprocess.Popen([WEIR, "up", "--port", "0", "--s3-port", "0", "--console-port", "0", "--end-with-stdin"],
                              cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            running = folder / ".weir/running.json"
            deadline = time.monotonic() + 120
            while not running.exists():
                assert up.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.1)
            url = json.loads(running.read_text())["dynamodb"]
            boto3.client("dynamodb", endpoint_url=url).put_item(TableName="pets", Item={"id": {"S": "rex"}})
            asyncio.run(reads(elsewhere, folder / ".weir/up"))
            raw(folder)
            asyncio.run(writes(folder))
        finally:
            up.stdin.close()
            up.wait(30)
    print(f"mcp_client: {calls} calls")


main()
