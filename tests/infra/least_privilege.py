"""Compares what each function's role allows with what the function does in a local run.

Runs the template with a recording proxy between each function and its endpoints, makes the functions do
everything that they can do, and prints a table. Fails if a function does something that its role does
not allow, or if a role allows something that its function does not do, without a reason listed here.
"""

import fnmatch
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from expansion import ROOT, TEMPLATE, Names, as_list, expand, role_of, statements

# `tests/infra/run` builds it.
BINARIES = ROOT / "target" / "debug"
POLLER = "Lambda's event source mapping reads the stream with the function's role"
MIGRATING = "for a migration that is under way; tests/real_data/northwind.py has one"
FAILURES = "Lambda sends what it discarded with the function's role"
# Allowed actions that the function itself does not use: (action, pattern of the resource) and the reason.
REASONS = {
    ("dynamodb:DescribeStream", "*/stream/*"): POLLER,
    ("dynamodb:GetRecords", "*/stream/*"): POLLER,
    ("dynamodb:GetShardIterator", "*/stream/*"): POLLER,
    ("dynamodb:ListStreams", "*/stream/*"): POLLER,
    ("s3:PutObject", "arn:aws:s3:::failures-bucket/aws/lambda/*"): FAILURES,
    ("s3:ListBucket", "arn:aws:s3:::failures-bucket"): FAILURES,
    ("logs:CreateLogStream", "*"): "Lambda writes the logs with the function's role",
    ("logs:PutLogEvents", "*"): "Lambda writes the logs with the function's role",
    ("xray:PutTelemetryRecords", "*"): "Lambda writes the traces with the function's role",
    ("xray:PutTraceSegments", "*"): "Lambda writes the traces with the function's role",
    ("s3:PutObject", "arn:aws:s3:::failures-bucket/quarantine/archive/*"):
        "for records that Lambda delivers damaged, which the local store never makes",
    ("dynamodb:UpdateItem", "*/movies-history"): "when KEEP_DAYS makes a version expire",
    ("dynamodb:DeleteItem", "*/movies-history"): "when KEEP_LAST prunes a version",
    ("dynamodb:Query", "*/movies-history"): "to find what is delivered again",
    ("s3:ListBucket", "arn:aws:s3:::archive-bucket"): "to tell that a receipt is not there: AWS says so only to who may list it",
    ("s3:ListBucketVersions", "arn:aws:s3:::archive-bucket"): "receipts are listed, their versions are not; a bucket has one statement",
    ("s3:DeleteObjectVersion", "arn:aws:s3:::archive-bucket/archive/*"): "for what a versioned bucket keeps of erased rows",
    ("s3:PutObject", "arn:aws:s3:::failures-bucket/quarantine/migration/*"): MIGRATING,
    ("dynamodb:BatchGetItem", "*:table/movies*"): MIGRATING,
    ("dynamodb:DescribeTable", "*:table/movies*"): MIGRATING,
    ("dynamodb:GetItem", "*:table/movies*"): MIGRATING,
    ("dynamodb:PartiQLInsert", "*:table/movies*"): MIGRATING,
    ("dynamodb:PutItem", "*:table/movies*"): MIGRATING,
    ("dynamodb:Query", "*:table/movies-target"): "when a split is reverted: parts are assembled again",
    ("dynamodb:Query", "*:table/weir-migrations"): "when a migration has a rate: its workers share it",
    ("dynamodb:Scan", "*:table/movies*"): MIGRATING,
    ("dynamodb:UpdateItem", "*:table/movies*"): MIGRATING,
    ("dynamodb:PutItem", "*:table/weir-migrations"): MIGRATING,
}
# The permissions of a transaction are those of its actions.
TRANSACTED = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}


class Recorder(http.server.BaseHTTPRequestHandler):
    """Forwards requests, and records the action and the resource of each."""

    protocol_version = "HTTP/1.1"

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.note(self.command, self.path, self.headers, body)
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=60)
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            upstream.putheader(name, value)
        upstream.endheaders(body)
        answer = upstream.getresponse()
        content = answer.read()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        has_body = self.command != "HEAD" and answer.status not in (204, 304)
        if has_body:
            self.send_header("Content-Length", str(len(content)))
        elif "Content-Length" in answer.headers:
            self.send_header("Content-Length", answer.headers["Content-Length"])
        self.end_headers()
        if has_body:
            self.wfile.write(content)
        upstream.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    def log_message(self, *_):
        """Logs nothing; requests are recorded instead."""


class Proxy(http.server.ThreadingHTTPServer):
    """The endpoint of one service for one function."""

    daemon_threads = True

    def __init__(self, calls_of, function, used):
        super().__init__(("127.0.0.1", 0), Recorder)
        self.calls_of, self.function, self.used, self.upstream = calls_of, function, used, None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def note(self, method, path, headers, body):
        for action, resource, prefix in self.calls_of(method, path, headers, body):
            self.used.setdefault((self.function, action, resource), prefix)


def dynamodb_calls(_method, _path, headers, body):
    """Returns (action, ARN, None) of a DynamoDB request."""
    action = headers["X-Amz-Target"].split(".")[1]
    request = json.loads(body)
    for operations in request.get("TransactItems", []):
        for kind, operation in operations.items():
            yield f"dynamodb:{TRANSACTED[kind]}", f"arn:aws:dynamodb:us-east-1:000000000000:table/{operation['TableName']}", None
    for statement in request.get("Statements", []):
        verb, table = re.match(r'(UPDATE|DELETE) (?:FROM )?"([^"]+)"', statement["Statement"]).groups()
        yield f"dynamodb:PartiQL{verb.title()}", f"arn:aws:dynamodb:us-east-1:000000000000:table/{table}", None
    items = request.get("RequestItems", {})
    tables = [request["TableName"]] if "TableName" in request else list(items)
    for table in tables:
        # The permission to query an index is the index's.
        index = f"/index/{request['IndexName']}" if "IndexName" in request else ""
        yield f"dynamodb:{action}", f"arn:aws:dynamodb:us-east-1:000000000000:table/{table}{index}", None


def s3_calls(method, path, _headers, _body):
    """Returns (action, ARN, prefix) of an S3 request in path style. The actions are IAM's."""
    parts = urllib.parse.urlsplit(path)
    bucket, _, key = urllib.parse.unquote(parts.path).lstrip("/").partition("/")
    if not key:
        query = urllib.parse.parse_qs(parts.query, keep_blank_values=True)
        action = "s3:ListBucketVersions" if "versions" in query else "s3:ListBucket"
        yield action, f"arn:aws:s3:::{bucket}", query.get("prefix", [""])[0]
        return
    actions = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "POST": "s3:PutObject", "DELETE": "s3:DeleteObject"}
    yield actions.get(method, f"s3:{method}"), f"arn:aws:s3:::{bucket}/{key}", None


def with_proxies(text, proxies):
    """Returns the template with each function's endpoints set to its proxies."""
    for function, (dynamodb, s3) in proxies.items():
        head, rest = text.split(f"\n  {function}:\n", 1)
        lines = f"        Variables:\n          AWS_ENDPOINT_URL_DYNAMODB: {dynamodb.url}\n          AWS_ENDPOINT_URL_S3: {s3.url}\n"
        text = head + f"\n  {function}:\n" + rest.replace("        Variables:\n", lines, 1)
    return text


def call(url, operation, request):
    """Sends one DynamoDB request."""
    headers = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": "application/x-amz-json-1.0"}
    body = json.dumps(request).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
        return json.load(answer)


def advance(url, seconds):
    body = json.dumps({"advance_ms": seconds * 1000}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{url}/_weir/clock", body), timeout=30).read()


def exercise(url, used):
    """Makes the functions do everything: count, reconcile, archive twice, refuse."""
    put = lambda table, item: call(url, "PutItem", {"TableName": table, "Item": item})
    for vote in range(1, 30):
        put("votes", {"slot": {"S": f"A#{vote % 5}"}, "votes": {"N": str(vote)}})
    put("votes", {"slot": {"S": "B#0"}, "votes": {"S": "not a number"}})
    # A version of it would be too large.
    put("movies", {"year": {"N": "1999"}, "title": {"S": "Long"}, "plot": {"S": "x" * 409_400}})
    # A product with copies in lines, and one with a value that came through too many copies.
    put("order-lines", {"orderID": {"N": "1"}, "productID": {"N": "7"}})
    put("products", {"productID": {"N": "7"}, "productName": {"S": "Chai"}})
    mark = '{"N":"1"}@/' + "0" * 40 + " 9"
    put("products", {"productID": {"N": "8"}, "productName": {"S": "Tea"}, "_from_other": {"S": mark}})
    for minute in range(2):
        for year in range(2000, 2020):
            put("movies", {"year": {"N": str(year)}, "title": {"S": f"T{minute}"}, "expires_at": {"N": "1700000000"}})
        advance(url, 61)
        time.sleep(4)
    wanted = [("CountersFunction", "s3:PutObject"), ("CountersFunction", "dynamodb:Scan"), ("ArchiveFunction", "s3:PutObject"), ("VersionsFunction", "dynamodb:PutItem"), ("VersionsFunction", "s3:PutObject"),
              ("FanOutFunction", "dynamodb:UpdateItem"), ("FanOutFunction", "dynamodb:PartiQLUpdate"), ("FanOutFunction", "dynamodb:Scan"), ("FanOutFunction", "s3:PutObject")]
    # A line created after its product's job is updated on its own.
    wait_for([("FanOutFunction", "dynamodb:PartiQLUpdate")], used)
    put("order-lines", {"orderID": {"N": "2"}, "productID": {"N": "7"}})
    wait_for(wanted, used)
    time.sleep(3)


def wait_for(wanted, used):
    """Waits until all of these (function, action) were done."""
    deadline = time.monotonic() + 240
    while missing := [want for want in wanted if all(key[:2] != want for key in used)]:
        if time.monotonic() > deadline:
            raise SystemExit(f"after 240 s {missing} have not happened, but {sorted(used)}")
        time.sleep(0.2)


def record(template):
    """Runs the template and returns {(function, action, resource): prefix} of the requests."""
    used, functions = {}, [n for n, r in template["Resources"].items() if r["Type"] == "AWS::Lambda::Function"]
    proxies = {f: (Proxy(dynamodb_calls, f, used), Proxy(s3_calls, f, used)) for f in functions}
    with tempfile.TemporaryDirectory(prefix="least-privilege-", dir=BINARIES.parent) as folder:
        path = pathlib.Path(folder)
        # Without sources next to the template, weir uses the functions in its own folder.
        for binary in ("weir", *(source.stem for source in (ROOT / "functions/processor/src/bin").glob("*.rs"))):
            os.link(BINARIES / binary, path / binary)
        (path / "template.yaml").write_text(with_proxies(TEMPLATE.read_text(), proxies))
        with open(path / "weir.log", "w") as log:
            command = [path / "weir", "up", "--port", "0", "--s3-port", "0"]
            process = subprocess.Popen(command, cwd=path, stdout=log, stderr=log)
            try:
                running = path / ".weir" / "running.json"
                while not running.exists():
                    if process.poll() is not None:
                        raise SystemExit((path / "weir.log").read_text())
                    time.sleep(0.1)
                endpoints = json.loads(running.read_text())
                for dynamodb, s3 in proxies.values():
                    dynamodb.upstream = endpoints["dynamodb"].removeprefix("http://")
                    s3.upstream = endpoints["s3"].removeprefix("http://")
                exercise(endpoints["dynamodb"], used)
                # Nothing expires any more, so parts of any age may be compacted.
                compact = [path / "weir", "archive", "compact", "--nothing-is-archiving"]
                subprocess.run(compact, cwd=path, check=True)
                # Twice under one name, so that the receipt is read and replaced.
                erase = [path / "weir", "archive", "erase", "--table", "movies", "--begins-with", "title=T1", "--name", "t-leaves", "--yes"]
                for _ in range(2):
                    subprocess.run(erase, cwd=path, check=True)
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    process.wait(timeout=60)
    return used


def grants(template, names, function):
    """Returns (action, resource pattern, prefix pattern) of each permission of a function's role."""
    for statement in statements(template, role_of(template, function)):
        condition = statement.get("Condition", {}).get("StringLike", {})
        for action in as_list(statement["Action"]):
            for resource in as_list(statement["Resource"]):
                for prefix in as_list(condition.get("s3:prefix", "*")):
                    yield action, names.text(resource), prefix


def compare(template, used):
    """Returns the rows of the table, and whether all of them are in order."""
    names, rows, failed = Names(template), [], 0
    for function in sorted({function for function, _, _ in used}):
        allowed = list(grants(template, names, function))
        left = set(allowed)
        for (_, action, resource), prefix in sorted(u for u in used.items() if u[0][0] == function):
            covers = [
                g for g in allowed
                if g[0] == action and fnmatch.fnmatchcase(resource, g[1]) and fnmatch.fnmatchcase(prefix or "", g[2])
            ]
            left -= set(covers)
            if not covers:
                rows.append((function, action, resource, "NOT ALLOWED"))
                failed += 1
        for action, resource, prefix in allowed:
            reason = next((why for (a, p), why in REASONS.items() if a == action and fnmatch.fnmatchcase(resource, p)), None)
            unused = (action, resource, prefix) in left
            verdict = "used" if not unused else reason or "NOT USED, and no reason is listed"
            failed += unused and reason is None
            rows.append((function, action, re.sub(r"^arn:aws:(\w+):[^:]*:\d*:", r"\1: ", resource), verdict))
    return rows, failed


def main():
    template = expand()
    used = record(template)
    rows, failed = compare(template, used)
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]))
    print(f"least privilege: {len(rows) - failed} passed, {failed} failed ({len(used)} different calls)")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main()))
