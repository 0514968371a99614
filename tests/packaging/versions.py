"""Runs one handler with each version of Python and Node that Lambda supports, with one `weir up`.

    versions.py WEIR FOLDER PATH

PATH is searched for the interpreters. A missing version is reported as skipped. Each handler returns the version of its
interpreter and receives one record of a stream. For one more function, `Handler` names a function that does not exist,
which `weir up` must report at the start. FOLDER is created again.
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
SECONDS_MAX = 90
PYTHON = """
import sys
def handler(event, context):
    for record in event.get("Records", []):
        print("saw", record["dynamodb"]["Keys"]["id"]["S"])
    return "python%d.%d" % sys.version_info[:2]
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


def is_here(runtime, path):
    """Returns whether an interpreter of a runtime's version is in a folder of the path."""
    name, flag = (runtime, "--version") if runtime.startswith("python") else ("node", "--version")
    wanted = re.sub(r"^(python|nodejs)|\.x$", "", runtime)
    for folder in path.split(os.pathsep):
        try:
            answer = subprocess.run([f"{folder}/{name}", flag], capture_output=True, text=True, timeout=10, check=False)
        except OSError:
            continue
        if re.match(rf"(Python |v){re.escape(wanted)}\.", answer.stdout):
            return True
    print(f"SKIPPED: {runtime}: no interpreter of this version")
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
    here = [runtime for runtime in RUNTIMES if is_here(runtime, path)]
    functions = [FUNCTION % (logical_id(runtime), runtime, "app.handler") + EVENT for runtime in here]
    broken = FUNCTION % ("BrokenFunction", here[0], "app.absent")
    (folder / "template.yaml").write_text(TABLE + "".join(functions) + broken, encoding="utf-8")
    (folder / "app.py").write_text(PYTHON, encoding="utf-8")
    (folder / "app.js").write_text(NODE, encoding="utf-8")
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
        for runtime in here:
            invoked = [weir, "invoke", logical_id(runtime)]
            answer = subprocess.run(invoked, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if answer.stdout.strip() != json.dumps(runtime):
                sys.exit(f"FAILED: {runtime}: {answer.stdout}{answer.stderr}")
            written = folder / f".weir/up/logs/{logical_id(runtime)}.log"
            wait_for(f"{runtime} has not seen the record", lambda: " saw one" in written.read_text(encoding="utf-8"))
            print(f"{runtime}: answered, and saw the record")
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
