"""Runs public templates with handlers in Python and Node by `weir up`, unmodified, and says what came of a record.

Reads scripts.tsv: repository, commit, the folder that is checked out (`.` is all of it), the template in it, parameters
(NAME=VALUE, separated by spaces), and an item in DynamoDB JSON whose attributes are put beside the keys. The code is read from clones, so nothing here fetches a template; pip and npm
install what the handlers depend on:

    for each repository of scripts.tsv: git clone --bare https://github.com/OWNER/NAME CLONES/OWNER/NAME
    tests/public_templates/run.py --clones CLONES --weir target/debug/weir

For each template it starts `weir up` in an empty folder, puts one item into each table with a stream, and waits for the
first invocation. `--only PATH` runs the templates whose path contains PATH; `--build SAM` runs `sam build` first where
the template has a BuildMethod. An outcome is `succeeded`, `failed` with the handler's error, or what kept it from
running. The exit code is 1 when no handler of a template got its record.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
START_SECONDS_MAX = 600
RECORD_SECONDS_MAX = 90
KEYS = {"S": "a-key", "N": "1", "B": "YQ=="}


def rows():
    for line in (HERE / "scripts.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        yield (line.split("\t") + ["", ""])[:6]


def checked_out(clone, commit, folder, target):
    archive = subprocess.run(["git", "-C", str(clone), "archive", f"{commit}:{folder.strip('.')}"], capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(target)], input=archive.stdout, check=True)


def ask(url, operation, body):
    request = urllib.request.Request(url, json.dumps(body).encode())
    request.add_header("x-amz-target", f"DynamoDB_20120810.{operation}")
    request.add_header("content-type", "application/x-amz-json-1.0")
    request.add_header(
        "authorization",
        "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0",
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def put_items(url, more):
    """Puts an item into each table with a stream; the names of those tables."""
    tables = []
    for name in ask(url, "ListTables", {})["TableNames"]:
        table = ask(url, "DescribeTable", {"TableName": name})["Table"]
        if "LatestStreamArn" not in table:
            continue
        types = {it["AttributeName"]: it["AttributeType"] for it in table["AttributeDefinitions"]}
        keys = [it["AttributeName"] for it in table["KeySchema"]]
        item = {key: {types[key]: KEYS[types[key]]} for key in keys}
        ask(url, "PutItem", {"TableName": name, "Item": {**item, **more}})
        tables.append(name)
    return tables


def outcomes(folder):
    """What each function made of its first invocation, from the logs of `weir up`."""
    found = {}
    for log in sorted(folder.glob(".weir/up/logs/*.log")):
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            what = line.split(" ", 2)[-1]
            if what.startswith(("ERROR ", "INIT_REPORT ")):
                found.setdefault(log.stem, "failed: " + what.split(" ", 1)[1][:200])
            elif what.startswith("REPORT "):
                found.setdefault(log.stem, "succeeded")
    return found


def text_of(log):
    return log.read_text(encoding="utf-8", errors="replace")


def run(weir, sam, folder, template, parameters, more):
    if sam and "BuildMethod" in (folder / template).read_text(encoding="utf-8"):
        built = subprocess.run([sam, "build", "-t", template], cwd=folder, capture_output=True, text=True)
        if built.returncode != 0:
            return {"": "sam build fails: " + built.stderr.strip().splitlines()[-1]}
    command = [weir, "--template", template]
    for parameter in parameters.split():
        command += ["--parameter", parameter]
    command += ["up", "--port", "0", "--s3-port", "0"]
    log = folder / "weir-up.log"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        running, begun = folder / ".weir/running.json", time.time()
        while not running.exists():
            if process.poll() is not None or time.time() - begun > START_SECONDS_MAX:
                errors = [line for line in text_of(log).splitlines() if line.lower().lstrip().startswith("error")]
                return {"": "does not start: " + (errors or ["no message"])[0][:200]}
            time.sleep(0.2)
        url = json.loads(running.read_text(encoding="utf-8"))["dynamodb"]
        begun, found = time.time(), {}
        while not found and time.time() - begun < RECORD_SECONDS_MAX:
            # A mapping from LATEST on misses what is written before it has started.
            put_items(url, {"written": {"N": str(time.time())}, **json.loads(more or "{}")})
            time.sleep(3)
            found = outcomes(folder)
        # Others that read the same stream are a moment behind.
        time.sleep(3)
        absent = [line.split("`")[1] for line in text_of(log).splitlines() if "does not run here" in line and "`" in line]
        return {**{name: "not run here" for name in absent}, **(outcomes(folder) or {"": "no invocation"})}
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=pathlib.Path, required=True)
    parser.add_argument("--weir", type=pathlib.Path, required=True)
    parser.add_argument("--build", metavar="SAM", default="")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    is_well = True
    for repository, commit, root, template, parameters, more in rows():
        path = str(pathlib.PurePosixPath(root, template))
        if given.only not in path:
            continue
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            checked_out(given.clones / repository, commit, root, folder)
            found = run(given.weir.resolve(), given.build, folder, template, parameters, more)
            if os.environ.get("SHOW_LOG"):
                print(text_of(folder / "weir-up.log"), file=sys.stderr)
        is_well = is_well and any(outcome.startswith(("succeeded", "failed")) for outcome in found.values())
        for function, outcome in sorted(found.items()):
            print(f"{repository}\t{path}\t{function}\t{outcome}", flush=True)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
