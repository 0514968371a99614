"""Runs public templates with handlers in Python and Node with `weir up`, unmodified, and writes each handler's outcome.

Reads scripts.tsv: repository, commit, the folder that is checked out (`.` is all of it), the template in it, parameters
(NAME=VALUE, separated by spaces), and an item in DynamoDB JSON whose attributes are added to the keys. The code is
read from clones, so nothing here fetches a template; pip and npm install what the handlers depend on:

    for each repository of scripts.tsv: git clone --bare https://github.com/OWNER/NAME CLONES/OWNER/NAME
    tests/public_templates/run.py --clones CLONES --weir target/debug/weir --build sam

For each template it starts `weir up` in an empty folder and on free ports, puts items into each table with a stream, and
waits for the first invocation of each function that reads one. `--only PATH` runs the templates whose path contains
PATH, and only prints; `--build SAM` runs `sam build` first where the template has a BuildMethod.

outcomes.tsv has a line for each function that reads a stream: its address, its runtime, whether it was invoked with a
record, and the outcome: `succeeded`, `failed` with the handler's error, or the reason why it did not run. A call to AWS
fails where AWS cannot be reached. The exit code is 1 when the handlers of fewer than SAMPLES_MIN templates received a record.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
START_SECONDS_MAX = 600
RECORD_SECONDS_MAX = 90
# Other functions on the same stream are invoked shortly after the first, unless a filter drops the record.
OTHERS_SECONDS_MAX = 20
SAMPLES_MIN = 12
OUTCOME_CHARACTERS_MAX = 160
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
    """Puts an item into each table with a stream; returns the names of those tables."""
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


def runtimes(text):
    """Returns the runtime of each logical id, and of `Function` in Globals. Parses only the indentation, because YAML
    tags do not matter here."""
    found, above = {}, []
    for line in text.splitlines():
        parts = re.match(r"""( *)["']?([A-Za-z0-9]+)["']?:\s*["']?([\w.]*)""", line)
        if not parts:
            continue
        above = [it for it in above if it[0] < len(parts[1])] + [(len(parts[1]), parts[2])]
        if parts[2] == "Runtime" and len(above) > 2:
            found[above[1][1]] = parts[3]
    return found


def invocations(folder):
    """Returns for each function whether it was invoked, and the outcome of the first invocation, from the logs of
    `weir up`."""
    found = {}
    for log in sorted(folder.glob(".weir/up/logs/*.log")):
        for line in text_of(log).splitlines():
            kind, _, rest = line.split(" ", 2)[-1].partition(" ")
            if kind in ("ERROR", "INIT_REPORT"):
                found.setdefault(log.stem, (kind == "ERROR", "failed: " + re.sub(r"^RequestId: \S+ Error: ", "", rest)))
            elif kind == "REPORT":
                found.setdefault(log.stem, (True, "succeeded"))
    return found


def text_of(log):
    return log.read_text(encoding="utf-8", errors="replace")


def started(process, folder, log):
    """Returns the addresses of a started `weir up`, or a string with the reason why it did not start."""
    running, begun = folder / ".weir/running.json", time.time()
    while not running.exists():
        if time.time() - begun > START_SECONDS_MAX:
            return f"not ready after {START_SECONDS_MAX} s"
        if process.poll() is not None:
            errors = [line for line in text_of(log).splitlines() if line.lower().lstrip().startswith("error")]
            return "does not start: " + (errors or ["no message"])[0]
        time.sleep(0.2)
    return json.loads(running.read_text(encoding="utf-8"))


def run(weir, sam, folder, template, parameters, more):
    """Returns whether the record was seen and the outcome, by function; one for `` when `weir up` does not start."""
    if sam and "BuildMethod" in text_of(folder / template):
        built = subprocess.run([sam, "build", "-t", template], cwd=folder, capture_output=True, text=True)
        if built.returncode != 0:
            return {"": (False, "sam build fails: " + built.stderr.strip().splitlines()[-1])}
    command = [weir, "--template", template]
    for parameter in parameters.split():
        command += ["--parameter", parameter]
    command += ["up", "--port", "0", "--s3-port", "0", "--invoke-port", "0", "--console-port", "0"]
    log = folder / "weir-up.log"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        running = started(process, folder, log)
        if isinstance(running, str):
            return {"": (False, running)}
        names = {name: logical for logical, name in running["functions"].items()}
        reading = set(re.findall(r"mapping +\S+ stream -> (\S+)", text_of(log)))
        reading = {name for name, logical in names.items() if {name, logical} & reading}
        begun, found = time.time(), {}
        while reading - found.keys() and time.time() - begun < (OTHERS_SECONDS_MAX if found else RECORD_SECONDS_MAX):
            # A mapping with LATEST misses writes before its start.
            put_items(running["dynamodb"], {"written": {"N": str(time.time())}, **json.loads(more or "{}")})
            time.sleep(3)
            found = {name: it for name, it in invocations(folder).items() if name in reading}
        absent = re.findall(r"`(\w+)` does not run here(.*)", text_of(log))
        seen = {names[name]: found.get(name, (False, "not invoked")) for name in reading}
        return {**{name: (False, "does not run here" + why) for name, why in absent}, **seen} or {"": (False, "no function")}
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
    lines, samples = ["address\tfunction\truntime\trecord seen\toutcome"], set()
    for repository, commit, root, template, parameters, more in rows():
        path = str(pathlib.PurePosixPath(root, template))
        if given.only not in path:
            continue
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            checked_out(given.clones / repository, commit, root, folder)
            found = run(given.weir.resolve(), given.build, folder, template, parameters, more)
            runtime = runtimes(text_of(folder / template))
            log = folder / "weir-up.log"
            # There is no log if `sam build` failed.
            if os.environ.get("SHOW_LOG") and log.exists():
                print(text_of(log), file=sys.stderr)
        address = f"https://github.com/{repository}/blob/{commit}/{path}"
        for function, (is_seen, outcome) in sorted(found.items()):
            of = runtime.get(function) or runtime.get("Function") or " ".join(sorted(set(runtime.values())))
            # A path of this machine means nothing to readers of the table; an address does.
            named = re.sub(r"(?<![\w:/.-])/(?:[^\s/'\",]+/)+", "", outcome.replace(f"{folder}/", ""))
            short = " ".join(named.split())[:OUTCOME_CHARACTERS_MAX]
            lines.append("\t".join((address, function, of, "yes" if is_seen else "no", short)))
            print(lines[-1], flush=True)
            samples.update([address] if is_seen else [])
    print(f"{len(samples)} templates have received a record")
    if given.only:
        return 0 if samples else 1
    (HERE / "outcomes.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if len(samples) >= SAMPLES_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
