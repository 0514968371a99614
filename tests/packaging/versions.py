"""Runs one handler with each version of Python and Node that Lambda supports, with one `weir up`.

    versions.py WEIR FOLDER PATH

PATH is searched for the interpreters. A missing version is reported as skipped. Each handler returns the version of its
interpreter and receives one record of a stream. With each Python, a second function lists awslambdaric, AWS's runtime
interface client, in its requirements.txt; it is skipped where pip has no wheel for this system. For one more function,
`Handler` names a function that does not exist, which `weir up` must report at the start. FOLDER is created again.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

# Lambda's runtimes: Python 3.10 to 3.14, Node 20 to 24.
RUNTIMES = ["python3.10", "python3.11", "python3.12", "python3.13", "python3.14", "nodejs20.x", "nodejs22.x", "nodejs24.x"]
# The start includes one installation for each Python.
SECONDS_MAX = 240
PYTHON = """
import sys
def handler(event, context):
    for record in event.get("Records", []):
        print("saw", record["dynamodb"]["Keys"]["id"]["S"])
    client = " awslambdaric" if "awslambdaric" in sys.modules else ""
    return "python%d.%d" % sys.version_info[:2] + client
"""
NODE = """
exports.handler = async (event) => {
  for (const record of event.Records ?? []) console.log("saw", record.dynamodb.Keys.id.S);
  return `nodejs${process.versions.node.split(".")[0]}.x`;
};
"""
TABLE = """Transform: AWS::Serverless-2016-10-31
Resources:
  Items:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: items
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: id, AttributeType: S}]
      KeySchema: [{AttributeName: id, KeyType: HASH}]
      StreamSpecification: {StreamViewType: NEW_IMAGE}
"""
FUNCTION = """  %s:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: %s
      CodeUri: %s
      Handler: %s
      Timeout: 60
"""
EVENT = """      Events:
        Changed:
          Type: DynamoDB
          Properties: {Stream: !GetAtt Items.StreamArn, StartingPosition: TRIM_HORIZON, MaximumRetryAttempts: 3}
"""
HEADERS = {
    "x-amz-target": "DynamoDB_20120810.PutItem",
    "content-type": "application/x-amz-json-1.0",
    "authorization": "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, "
    "SignedHeaders=host, Signature=0",
}


def interpreter(runtime, path):
    """Returns the interpreter of a runtime's version in a folder of the path; `None` if there is none."""
    name, flag = (runtime, "--version") if runtime.startswith("python") else ("node", "--version")
    wanted = re.sub(r"^(python|nodejs)|\.x$", "", runtime)
    for folder in path.split(os.pathsep):
        try:
            answer = subprocess.run([f"{folder}/{name}", flag], capture_output=True, text=True, timeout=10, check=False)
        except OSError:
            continue
        if re.match(rf"(Python |v){re.escape(wanted)}\.", answer.stdout):
            return f"{folder}/{name}"
    print(f"SKIPPED: {runtime}: no interpreter of this version")
    return None


def has_wheel(runtime, python, folder):
    """Returns whether pip can install awslambdaric into a folder without a compiler. Installs nothing."""
    pip = [python, "-m", "pip", "install", "--dry-run", "--target", folder, "--only-binary", ":all:", "awslambdaric"]
    try:
        answer = subprocess.run(pip, capture_output=True, text=True, timeout=120, check=False)
        if answer.returncode == 0:
            return True
        reason = answer.stderr.strip().rpartition("\n")[2]
    except subprocess.TimeoutExpired:
        reason = "pip does not answer"
    print(f"SKIPPED: {runtime} with awslambdaric: {reason}")
    return False


def logical_id(runtime):
    return "".join(part.capitalize() for part in re.split(r"\W", runtime)) + "Function"


def wait_for(what, found):
    begun = time.monotonic()
    while not found():
        if time.monotonic() - begun > SECONDS_MAX:
            sys.exit(f"FAILED: {what} after {SECONDS_MAX} s")
        time.sleep(0.1)


def main():
    weir, folder, path = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), sys.argv[3]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    here = {runtime: found for runtime in RUNTIMES if (found := interpreter(runtime, path))}
    # The logical id of each function, with its runtime, CodeUri and response.
    functions = {logical_id(runtime): (runtime, "plain", runtime) for runtime in here}
    for runtime, program in here.items():
        if runtime.startswith("python") and has_wheel(runtime, program, folder / "packages"):
            functions["Aws" + logical_id(runtime)] = (runtime, "aws", runtime + " awslambdaric")
    described = [FUNCTION % (name, runtime, code, "app.handler") + EVENT for name, (runtime, code, _) in functions.items()]
    broken = FUNCTION % ("BrokenFunction", next(iter(here)), "plain", "app.absent")
    (folder / "template.yaml").write_text(TABLE + "".join(described) + broken, encoding="utf-8")
    for code in ("plain", "aws"):
        (folder / code).mkdir()
        (folder / code / "app.py").write_text(PYTHON, encoding="utf-8")
    (folder / "plain/app.js").write_text(NODE, encoding="utf-8")
    (folder / "aws/requirements.txt").write_text("awslambdaric\n", encoding="utf-8")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("FAILED: ended by a signal"))
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1"}
    log, running = folder / "up.log", folder / ".weir/running.json"
    command = [weir, "up", "--port", "0", "--s3-port", "0", "--invoke-port", "0", "--console-port", "0"]
    with log.open("w", encoding="utf-8") as output:
        up = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        wait_for("`weir up` is not ready", lambda: running.exists() or up.poll() is not None)
        if up.poll() is not None:
            sys.exit("FAILED: `weir up` ended:\n" + log.read_text(encoding="utf-8"))
        url = json.loads(running.read_text(encoding="utf-8"))["dynamodb"]
        item = json.dumps({"TableName": "items", "Item": {"id": {"S": "one"}}}).encode()
        urllib.request.urlopen(urllib.request.Request(url, item, HEADERS), timeout=30).close()
        for name, (_, _, wanted) in functions.items():
            invoked = [weir, "invoke", name]
            answer = subprocess.run(invoked, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if answer.stdout.strip() != json.dumps(wanted):
                sys.exit(f"FAILED: {wanted}: {answer.stdout}{answer.stderr}")
            written = folder / f".weir/up/logs/{name}.log"
            wait_for(f"{wanted} has not seen the record", lambda: " saw one" in written.read_text(encoding="utf-8"))
            print(f"{wanted}: answered, and saw the record")
        wanted = ("BrokenFunction cannot start", "correct Handler")
        wait_for("`weir up` has not named the broken handler", lambda: all(it in log.read_text(encoding="utf-8") for it in wanted))
    finally:
        up.send_signal(signal.SIGINT)
        try:
            up.wait(30)
        except subprocess.TimeoutExpired:
            up.kill()


if __name__ == "__main__":
    main()
