"""Lets awslabs' DynamoDB MCP server validate data models on the store, and compares it with `weir model check`.

The server starts `examples/dynamodb_mcp/bin/java` for DynamoDB Local, as docs/models.md describes. Each answer
of its validation must equal the answer of `weir model check`, and each error must have the same name.
Arguments are models to compare instead of those of this project. The server has a separate environment,
because it pins versions of its dependencies.
"""

import ast
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

ROOT = Path(__file__).resolve().parents[2]
MODELS = [Path(name) for name in sys.argv[1:]] or [*sorted(ROOT.glob("examples/patterns/*/model.json")), *ROOT.glob("runner/design/testdata/models/*.json")]
PROPERTY = "dynamodb.local.setup.for.data.model.validation"
# Python's text of a response contains the JSON as a literal.
LITERAL = re.compile(r"""as_json=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
ERROR = re.compile(r"\((\w+Exception|ValidationError)\)")
LIMIT = re.compile(r"--limit (\d+)")


def stand_ins(mark=PROPERTY):
    """Returns the processes that the server treats as DynamoDB Local, with this string in an argument."""
    return [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if "java" in (process.info["name"] or "") and any(mark in word for word in process.info["cmdline"] or [])
    ]


def of_verb(model):
    """Returns the answer of each access pattern that has a command, or the name of its error."""
    command = [ROOT / "target/debug/weir", "model", "check", model, "--output", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert done.returncode in (0, 3), (model, done)
    patterns = [pattern for pattern in json.loads(done.stdout)["patterns"] if pattern["operation"]]
    return [pattern["error"].split(":")[0] if pattern["error"] else pattern["answer"] for pattern in patterns]


def of_server(folder):
    """Returns the same from the result that the server has written."""
    result = json.loads((folder / "dynamodb_model_validation.json").read_text())
    answers = []
    for pattern in result["validation_response"]:
        if "response" not in pattern:
            continue
        text = pattern["response"] if isinstance(pattern["response"], str) else json.dumps(pattern["response"])
        literal = LITERAL.search(text)
        error = ERROR.search(text)
        if literal:
            answers.append(json.loads(ast.literal_eval(literal[1])))
        else:
            assert error, pattern
            answers.append(error[1])
    return answers


def comparable(answer, command):
    """Returns an answer without its transport metadata.

    With `--limit` the AWS CLI and `weir model check` read one page, and this server all: only that page is compared.
    """
    if isinstance(answer, str):
        return answer
    names = answer.keys() - {"ResponseMetadata", "ConsumedCapacity"}
    answer = {name: answer[name] for name in names if answer[name] not in (None, {})}
    if limit := LIMIT.search(command):
        return answer["Items"][: int(limit[1])]
    return answer


async def main():
    if stand_ins():
        print("SKIPPED: awslabs_models: a process that the server would use is running already")
        return
    folder = Path(tempfile.mkdtemp())
    # With these two the server downloads nothing.
    local = folder / "dynamodb-local-model-validation"
    (local / "DynamoDBLocal_lib").mkdir(parents=True)
    (local / "DynamoDBLocal.jar").touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    # No container tool is on this path, so the server uses Java.
    environment |= {
        "PATH": f"{ROOT / 'target/debug'}:/usr/bin:/bin",
        "JAVA_HOME": str(ROOT / "examples/dynamodb_mcp"),
        "TMPDIR": str(folder),
        "AWS_REGION": "us-east-1",
    }
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "awslabs.dynamodb_mcp_server.server"], env=environment
    )
    patterns = 0
    try:
        with open(folder / "server.log", "w") as log:
            async with stdio_client(server, errlog=log) as streams, ClientSession(*streams) as session:
                await session.initialize()
                for model in MODELS:
                    workspace = Path(tempfile.mkdtemp(dir=folder))
                    shutil.copy(model, workspace / "dynamodb_data_model.json")
                    call = await session.call_tool(
                        "dynamodb_data_model_validation", {"workspace_dir": str(workspace)}
                    )
                    written = workspace / "dynamodb_model_validation.json"
                    assert written.exists(), (model, call, (folder / "server.log").read_text()[-2000:])
                    found, expected = of_server(workspace), of_verb(model)
                    patterns_of_file = json.loads(model.read_text())["access_patterns"]
                    commands = [pattern["implementation"] for pattern in patterns_of_file if "implementation" in pattern]
                    for command, one, other in zip(commands, found, expected, strict=True):
                        one, other = comparable(one, command), comparable(other, command)
                        assert one == other, f"{model}: {command}\nawslabs: {one}\nweir: {other}"
                    patterns += len(found)
    finally:
        # The server leaves DynamoDB Local running.
        for process in stand_ins(str(folder)):
            process.terminate()
            process.wait(10)
        shutil.rmtree(folder)
    print(f"awslabs_models: {len(MODELS)} models, {patterns} access patterns, answers equal those of `weir model check`")


asyncio.run(main())
