"""Runs a Python handler on the Lambda Runtime API, with the semantics of Lambda's own runtime.

`weir up` starts it in the folder of the function's code. Where awslambdaric, AWS's runtime interface
client, can run, that client runs the handler instead. It needs only the standard library, and
runs one invocation at a time, as Lambda does.
"""

import decimal
import http.client
import importlib
import importlib.util
import json
import logging
import os
import sys
import time
import traceback

API = "/2018-06-01/runtime/"
HANDLER = os.environ["_HANDLER"]
TASK_ROOT = os.environ["LAMBDA_TASK_ROOT"]
IS_JSON = os.environ.get("AWS_LAMBDA_LOG_FORMAT", "").upper() == "JSON"

request_id = None


class InitError(Exception):
    """The reason why the handler cannot be invoked, with Lambda's error type."""

    def __init__(self, kind, message, trace, remedy):
        super().__init__(message)
        self.kind, self.trace, self.remedy = kind, trace, remedy


class Identity:
    """The identity of the caller, which is empty for streams and schedules."""

    def __init__(self, found):
        self.cognito_identity_id = found.get("cognitoIdentityId")
        self.cognito_identity_pool_id = found.get("cognitoIdentityPoolId")


class Context:
    """The context that Lambda passes to the handler with the event."""

    def __init__(self, headers):
        self.aws_request_id = headers.get("Lambda-Runtime-Aws-Request-Id")
        self.invoked_function_arn = headers.get("Lambda-Runtime-Invoked-Function-Arn")
        self.function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
        self.function_version = os.environ["AWS_LAMBDA_FUNCTION_VERSION"]
        self.memory_limit_in_mb = os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]
        self.log_group_name = os.environ["AWS_LAMBDA_LOG_GROUP_NAME"]
        self.log_stream_name = os.environ["AWS_LAMBDA_LOG_STREAM_NAME"]
        self.identity = Identity(json.loads(headers.get("Lambda-Runtime-Cognito-Identity") or "{}"))
        self.client_context = json.loads(headers.get("Lambda-Runtime-Client-Context") or "null")
        self.tenant_id = headers.get("Lambda-Runtime-Aws-Tenant-Id")
        self._deadline_ms = int(headers.get("Lambda-Runtime-Deadline-Ms"))

    def get_remaining_time_in_millis(self):
        return max(0, self._deadline_ms - int(time.time() * 1000))

    def log(self, message):
        sys.stdout.write(str(message))
        sys.stdout.flush()


class JsonFormatter(logging.Formatter):
    """Formats each log record as a line with one JSON object, for `LogFormat: JSON`."""

    def format(self, record):
        entry = {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname,
            "message": record.getMessage(),
            "logger": record.name,
            "requestId": request_id,
        }
        if record.exc_info:
            entry["errorType"] = record.exc_info[0].__name__
            entry["errorMessage"] = str(record.exc_info[1])
            entry["stackTrace"] = traceback.format_tb(record.exc_info[2])
        return json.dumps(entry, default=str)


class Api:
    """The connection to the Runtime API. If the connection fails, the process exits."""

    def __init__(self):
        self.connection = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])

    def call(self, method, path, body=None, headers=None):
        try:
            self.connection.request(method, API + path, body, headers or {})
            response = self.connection.getresponse()
            return response.status, response.headers, response.read()
        except (OSError, http.client.HTTPException) as error:
            sys.exit(f"the Runtime API does not answer: {error!r}")

    def report(self, path, kind, message, trace):
        body = {"errorMessage": message, "errorType": kind, "requestId": request_id or "", "stackTrace": trace}
        headers = {"Content-Type": "application/json", "Lambda-Runtime-Function-Error-Type": kind.encode("ascii", "replace").decode()}
        self.call("POST", path, json.dumps(body).encode(), headers)


def prepare():
    """Sets up the module path, unbuffered output and the root logger, as on Lambda."""
    sys.path[0] = TASK_ROOT
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter() if IS_JSON else logging.Formatter("[%(levelname)s]\t%(message)s"))
    logging.root.addHandler(handler)
    level = os.environ.get("AWS_LAMBDA_LOG_LEVEL", "").upper() if IS_JSON else ""
    levels = {"TRACE": "DEBUG", "FATAL": "CRITICAL", "WARN": "WARNING"}
    if level:
        logging.root.setLevel(levels.get(level, level))


def frames_of_user(error):
    """Returns the frames of an error's traceback, without the frames of this file and of the import system."""
    own = (__file__, importlib.__file__)
    frames = traceback.extract_tb(error.__traceback__)
    return [it for it in frames if it.filename not in own and not it.filename.startswith("<frozen importlib")]


def find_handler():
    """Imports the module of the handler and returns its function."""
    module_name, dot, function_name = HANDLER.rpartition(".")
    if not dot or not module_name or not function_name:
        raise InitError(
            "Runtime.MalformedHandlerName",
            f"Bad handler '{HANDLER}': not enough values to unpack (expected 2, got 1)",
            [],
            "write `Handler: FILE.FUNCTION`, such as app.lambda_handler for the function in app.py",
        )
    try:
        module = importlib.import_module(module_name.replace("/", "."))
    except ImportError as error:
        trace = traceback.format_list(frames_of_user(error))
        message = f"Unable to import module '{module_name}': {error}"
        raise InitError("Runtime.ImportModuleError", message, trace, remedy(error, module_name)) from error
    except SyntaxError as error:
        trace = [f'  File "{error.filename}", line {error.lineno}\n    {(error.text or "").strip()}']
        message = f"Syntax error in module '{module_name}': {error}"
        raise InitError("Runtime.UserCodeSyntaxError", message, trace, None) from error
    if not hasattr(module, function_name):
        message = f"Handler '{function_name}' missing on module '{module_name}'"
        raise InitError("Runtime.HandlerNotFound", message, [], functions_of(module, function_name))
    return getattr(module, function_name)


def functions_of(module, missing):
    names = [name for name, it in vars(module).items() if callable(it) and getattr(it, "__module__", "") == module.__name__]
    found = ", ".join(f"`{name}`" for name in names[:8]) or "none"
    return f"define `{missing}` in {module.__file__}, or correct Handler; its functions: {found}"


def remedy(error, module_name):
    """Returns the advice for a module that cannot be imported."""
    missing = (getattr(error, "name", None) or "").split(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not missing:
        return None
    if missing == module_name.replace("/", ".").split(".")[0]:
        return f"put the module into {TASK_ROOT}, or correct Handler and CodeUri"
    return (
        f"add the package that has the module `{missing}` to `requirements.txt` in {TASK_ROOT} and start "
        "`weir up` again; a layer must be a folder of this template"
    )


def to_json(value):
    """The response as Lambda writes it: a Decimal is a number, and anything else is refused."""

    def other(value):
        if isinstance(value, decimal.Decimal):
            return float(value)
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")

    return json.dumps(value, default=other, ensure_ascii=False).encode()


def fail(api, path, kind, message, trace):
    """Writes an error of the handler to the log, and reports it."""
    if IS_JSON:
        logging.root.error(json.dumps({"errorType": kind, "errorMessage": message, "stackTrace": trace}))
    else:
        print(f"[ERROR] {kind}: {message}")
        for line in "".join(trace).splitlines():
            print(line)
    api.report(path, kind, message, trace)


def invoke(api, handler):
    """Runs one invocation and sends the response."""
    global request_id
    status, headers, body = api.call("GET", "invocation/next")
    if status != 200:
        sys.exit(f"the Runtime API refuses an invocation: status {status}, {body!r}")
    request_id = headers["Lambda-Runtime-Aws-Request-Id"]
    os.environ["_X_AMZN_TRACE_ID"] = headers.get("Lambda-Runtime-Trace-Id") or ""
    path = f"invocation/{request_id}/"
    try:
        event = json.loads(body)
    except ValueError as error:
        return fail(api, path + "error", "Runtime.UnmarshalError", f"Unable to unmarshal input: {error}", [])
    try:
        result = handler(event, Context(headers))
    except Exception as error:
        trace = traceback.format_list(frames_of_user(error))
        return fail(api, path + "error", type(error).__name__, str(error), trace)
    try:
        response = to_json(result)
    except Exception as error:
        return fail(api, path + "error", "Runtime.MarshalError", f"Unable to marshal response: {error}", [])
    api.call("POST", path + "response", response, {"Content-Type": "application/json"})


def report_init(api, kind, message, trace, help_text):
    """Reports why the handler cannot be invoked, on standard error with advice, and exits."""
    for line in "".join(trace).splitlines():
        print(line, file=sys.stderr)
    if help_text:
        print(help_text, file=sys.stderr)
    api.report("init/error", kind, message, trace)
    sys.exit(1)


def has_client_of_aws():
    """Returns whether awslambdaric can run. It needs its native module, which pip omits on systems other than Linux, and
    which another version of Python does not find."""
    return all(importlib.util.find_spec(name) for name in ("awslambdaric", "runtime_client"))


def main():
    prepare()
    if has_client_of_aws():
        os.execv(sys.executable, [sys.executable, "-m", "awslambdaric", HANDLER])
    api = Api()
    try:
        handler = find_handler()
    except InitError as error:
        report_init(api, error.kind, str(error), error.trace, error.remedy)
    except Exception as error:
        report_init(api, type(error).__name__, str(error), traceback.format_list(frames_of_user(error)), None)
    while True:
        invoke(api, handler)


if __name__ == "__main__":
    main()
