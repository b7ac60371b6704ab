"""A worker of Kafka Connect in a thread of the test: its REST interface, with the shapes of the real one's answers.

Nothing runs behind it. Tests say what its classes define, what it finds wrong, and how it misbehaves.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

WORKER = "127.0.0.1:8083"
POSTGRES = "io.debezium.connector.postgresql.PostgresConnector"
JDBC = "io.debezium.connector.jdbc.JdbcSinkConnector"
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
BASE = {
    **dict.fromkeys(("name", "connector.class", "key.converter", "value.converter", "header.converter"), "CLASS"),
    "tasks.max": "INT",
    "transforms": "LIST",
    "predicates": "LIST",
    "errors.tolerance": "STRING",
    "topic.creation.groups": "LIST",
    "exactly.once.support": "STRING",
    "transaction.boundary": "STRING",
}
"""Setting -> its type, of every class."""
DEFINED: Mapping[str, Mapping[str, str]] = {
    POSTGRES: {
        "database.hostname": "STRING",
        "database.port": "INT",
        "database.user": "STRING",
        "database.password": "PASSWORD",
        "database.dbname": "STRING",
        "topic.prefix": "STRING",
        "plugin.name": "STRING",
        "slot.name": "STRING",
        "publication.name": "STRING",
        "snapshot.mode": "STRING",
        "publication.autocreate.mode": "STRING",
        "table.include.list": "LIST",
        "decimal.handling.mode": "STRING",
        "snapshot.select.statement.overrides": "STRING",
        "tombstones.on.delete": "BOOLEAN",
    },
    JDBC: {
        "topics": "LIST",
        "topics.regex": "STRING",
        "connection.url": "STRING",
        "connection.username": "STRING",
        "connection.password": "PASSWORD",
        "insert.mode": "STRING",
        "delete.enabled": "BOOLEAN",
        "primary.key.mode": "STRING",
        "schema.evolution": "STRING",
        "collection.name.format": "STRING",
    },
    FILE_SOURCE: {"file": "STRING", "topic": "STRING", "batch.size": "INT"},
}
OF_TRANSFORMS = {
    UNWRAP: ("delete.tombstone.handling.mode", "add.fields", "add.headers"),
    "org.apache.kafka.connect.transforms.RegexRouter": ("regex", "replacement"),
}
OF_CONVERTERS = {"org.apache.kafka.connect.json.JsonConverter": ("schemas.enable", "schemas.cache.size")}


class Refused(Exception):
    """A request is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass
class Connector:
    """A connector of the cluster."""

    config: dict[str, str]
    state: str = "RUNNING"
    tasks: list[dict[str, Any]] = field(default_factory=list)
    offsets: list[dict[str, Any]] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    trace: str | None = None
    type: str = "source"


@dataclass
class FakeConnect:
    """A cluster of one worker, and how it answers."""

    url: str = ""
    connectors: dict[str, Connector] = field(default_factory=dict)
    classes: tuple[str, ...] = (POSTGRES, JDBC, FILE_SOURCE)
    versions: dict[str, str | None] = field(default_factory=dict)
    """Class -> its version, if it is not that of all others."""
    errors: dict[str, list[str]] = field(default_factory=dict)
    """Setting -> what the worker says of it; `{value}` is its value, after references were followed."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Reference -> what it leads to."""
    next: list[tuple[int, str]] = field(default_factory=list)
    """What the next requests are answered instead: a status and a message."""
    hangs: bool = False
    cluster: str = "MkU3OEVBNTcwNTJENDM2Qg"
    """Id of the Kafka cluster."""
    login: tuple[str, str] | None = None
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    """Method, path and body of each request."""
    before_put: Callable[[], None] | None = None

    @property
    def changes(self) -> list[tuple[str, str]]:
        """The requests that change something."""
        return [(way, path) for way, path, _ in self.requests if way != "GET" and "/connector-plugins/" not in path]

    def add(self, name: str, config: Mapping[str, str], tasks: int = 1) -> Connector:
        """A connector that runs."""
        running = [{"id": number, "state": "RUNNING", "worker_id": WORKER} for number in range(tasks)]
        self.connectors[name] = Connector({**config, "name": name}, tasks=running)
        return self.connectors[name]

    def fail(self, name: str, task: int, trace: str) -> None:
        """A task of a connector fails."""
        self.connectors[name].tasks[task] |= {"state": "FAILED", "trace": trace}

    def answer(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        """The status and the document for a request."""
        address = urlsplit(target)
        parts = [unquote(part) for part in address.path.strip("/").split("/")]
        asked = parse_qs(address.query)
        match method, parts:
            case "GET", [""]:
                return 200, {"version": "4.3.1", "commit": "abc", "kafka_cluster_id": self.cluster}
            case "GET", ["connectors"]:
                return 200, self._expanded(asked["expand"]) if "expand" in asked else [*self.connectors]
            case "GET", ["connector-plugins"]:
                found = {each: self.versions.get(each, "3.5.0.Final") for each in self.classes}
                return 200, [{"class": each, "type": "source", "version": of} for each, of in found.items()]
            case "PUT", ["connector-plugins", class_, "config", "validate"]:
                return 200, self._validated(class_, body)
            case "GET", ["connectors", name]:
                return 200, self._info(name)
            case "PUT", ["connectors", name, "config"]:
                return self._put(name, body)
            case "DELETE", ["connectors", name]:
                self._of(name)
                del self.connectors[name]
                return 204, None
            case "GET", ["connectors", name, "status"]:
                return 200, self._status(name)
            case "PUT", ["connectors", name, "pause" | "resume" | "stop" as action]:
                return self._moved(name, action)
            case "POST", ["connectors", name, "restart"]:
                return self._restarted(name, asked["onlyFailed"] == ["true"], asked["includeTasks"] == ["true"])
            case "POST", ["connectors", name, "tasks", number, "restart"]:
                return self._task_restarted(name, int(number))
            case "GET", ["connectors", name, "offsets"]:
                return 200, {"offsets": self._of(name).offsets}
            case "GET", ["connectors", name, "topics"]:
                return 200, {name: {"topics": self._of(name).topics}}
            case "DELETE", ["connectors", name, "offsets"]:
                return self._reset(name)
        raise Refused(404, "HTTP 404 Not Found")

    def _of(self, name: str) -> Connector:
        if name not in self.connectors:
            raise Refused(404, f"Connector {name} not found")
        return self.connectors[name]

    def _info(self, name: str) -> dict[str, Any]:
        found = self._of(name)
        tasks = [{"connector": name, "task": each["id"]} for each in found.tasks]
        return {"name": name, "config": found.config, "tasks": tasks, "type": found.type}

    def _status(self, name: str) -> dict[str, Any]:
        found = self._of(name)
        own = {"state": found.state, "worker_id": WORKER, "version": "3.5.0.Final"}
        if found.trace is not None:
            own["trace"] = found.trace
        return {"name": name, "connector": own, "tasks": found.tasks, "type": found.type}

    def _expanded(self, what: list[str]) -> dict[str, Any]:
        ways = {"info": self._info, "status": self._status}
        return {name: {each: ways[each](name) for each in what} for name in self.connectors}

    def _put(self, name: str, config: Mapping[str, str]) -> tuple[int, Any]:
        if self.before_put is not None:
            self.before_put()
        if config["name"] != name:
            raise Refused(
                400, f"Connector name configuration ({config['name']}) doesn't match connector name in the URL"
            )
        is_new = name not in self.connectors
        self.add(name, config)
        return (201 if is_new else 200), self._info(name)

    def _moved(self, name: str, action: str) -> tuple[int, Any]:
        found, state = self._of(name), {"pause": "PAUSED", "resume": "RUNNING", "stop": "STOPPED"}[action]
        found.state = state
        tasks = [{"id": each["id"], "state": state, "worker_id": WORKER} for each in found.tasks]
        found.tasks = [] if action == "stop" else tasks
        return (204 if action == "stop" else 202), None

    def _restarted(self, name: str, only_failed: bool, include_tasks: bool) -> tuple[int, Any]:
        for task in self._of(name).tasks if include_tasks else ():
            if not only_failed or task["state"] == "FAILED":
                task.pop("trace", None)
                task["state"] = "RUNNING"
        return 202, self._status(name)

    def _task_restarted(self, name: str, number: int) -> tuple[int, Any]:
        for task in self._of(name).tasks:
            if task["id"] == number:
                task.pop("trace", None)
                task["state"] = "RUNNING"
                return 204, None
        raise Refused(404, f"Unknown task: {name}-{number}")

    def _reset(self, name: str) -> tuple[int, Any]:
        found = self._of(name)
        if found.state != "STOPPED":
            raise Refused(
                400,
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for "
                f"the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
            )
        found.offsets = []
        return 200, {"message": "The offsets for this connector have been reset successfully"}

    def _validated(self, class_: str, config: Mapping[str, str]) -> dict[str, Any]:
        if config.get("connector.class", class_) != class_:
            raise Refused(400, f"Included connector type {config['connector.class']} does not match request type")
        full = next((each for each in self.classes if each.endswith(class_)), class_)
        types = {**BASE, **DEFINED[full], **_of_parts(config)}
        configs = [self._setting(each, types[each], config) for each in types]
        for each in config:
            if each.startswith(("consumer.override.", "producer.override.")):
                configs.append({"definition": None, "value": _value(each, config[each], [])})
        errors = sum(len(each["value"]["errors"]) for each in configs)
        return {"name": class_, "error_count": errors, "groups": ["Common"], "configs": configs}

    def _setting(self, name: str, kind: str, config: Mapping[str, str]) -> dict[str, Any]:
        value: str | None = config.get(name)
        for reference, secret in self.secrets.items():
            value = value and value.replace(reference, secret)
        errors = [each.format(value=value) for each in self.errors.get(name, ())]
        definition = {
            "name": name,
            "type": kind,
            "required": False,
            "default_value": None,
            "importance": "HIGH",
            "documentation": "",
            "group": "Common",
            "width": "MEDIUM",
            "display_name": name,
            "dependents": [],
            "order": 1,
        }
        return {"definition": definition, "value": _value(name, "[hidden]" if kind == "PASSWORD" else value, errors)}


def _value(name: str, value: str | None, errors: list[str]) -> dict[str, Any]:
    return {"name": name, "value": value, "recommended_values": [], "errors": errors, "visible": True}


def _of_parts(config: Mapping[str, str]) -> dict[str, str]:
    """The settings of transforms and converters that the worker has."""
    found: dict[str, str] = {}
    for alias in filter(None, config.get("transforms", "").split(",")):
        own = OF_TRANSFORMS.get(config.get(f"transforms.{alias}.type", ""), ())
        found |= {f"transforms.{alias}.{each}": "STRING" for each in ("type", "predicate", "negate", *own)}
    for side in ("key.converter", "value.converter"):
        found |= {f"{side}.{each}": "STRING" for each in OF_CONVERTERS.get(config.get(side, ""), ())}
    return found


@contextmanager
def fake_connect() -> Iterator[FakeConnect]:
    """A worker on a free port, until the block ends."""
    fake, over = FakeConnect(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (ConnectionError, TimeoutError):
                self.close_connection = True

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            document = json.loads(body) if body else None
            fake.requests.append((self.command, unquote(self.path), document))
            if fake.hangs:
                over.wait()
            if fake.login is not None and self.headers.get("Authorization") != _basic(*fake.login):
                return self._say(401, {"error_code": 401, "message": "User cannot access the resource."})
            if fake.next:
                status, message = fake.next.pop(0)
                return self._say(status, {"error_code": status, "message": message})
            try:
                self._say(*fake.answer(self.command, self.path, document))
            except Refused as refused:
                self._say(refused.status, {"error_code": refused.status, "message": refused.message})

        do_GET = do_PUT = do_POST = do_DELETE = _handle

        def _say(self, status: int, document: Any) -> None:
            content = b"" if document is None else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
