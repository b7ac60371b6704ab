"""The schema registry of the stack, as a client sees it that knows nothing but `access.toml`."""

from __future__ import annotations

import base64
import json
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import psycopg
import pytest

from deltaworks import Avro, JsonSchema, Protobuf, clock
from deltaworks.errors import ConflictError, SchemasUnavailableError, StackError
from deltaworks.kafka.kept_schemas import Kept
from deltaworks.kafka.schema_registry import Registry
from deltaworks.kafka.schemas_of_settings import SchemasOfSettings
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.serdes import wire
from deltaworks.serdes.protobuf.descriptors import _compiled
from deltaworks.serdes.schemas import Reference, WriterSchema, bound
from deltaworks.settings import Settings
from deltaworks.stack import ports, postgres, schema_registry
from deltaworks.stack.lifecycle import Status, down, log_of, status, up
from tests.support.live_stack import await_restart, listening, reachable

NAME = "schema-registry"
PATIENCE_S = 60
USER = WriterSchema('{"type":"record","name":"User","fields":[{"name":"id","type":"long"}]}', "AVRO")
WIDER = WriterSchema(
    '{"type":"record","name":"User","fields":[{"name":"id","type":"long"},'
    '{"name":"name","type":"string","default":""}]}',
    "AVRO",
)
ORDER = WriterSchema(
    '{"type":"record","name":"Order","fields":[{"name":"user","type":"User"}]}',
    "AVRO",
    (Reference("User", USER, "users-value"),),
)
PROTOBUF = WriterSchema('syntax = "proto3";\nmessage Payment {\n  int64 id = 1;\n}\n', "PROTOBUF")
SHOP = WriterSchema(
    """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  enum State { NEW = 0; PAID = 3; }
  message Line { string item = 1; repeated sint64 amounts = 4; }
  string order_id = 1;
  optional int32 rank = 2;
  State state = 5;
  repeated Line lines = 6;
  map<string, Line> by_name = 7;
  oneof payment { bytes token = 8; double cash = 9; }
  google.protobuf.Timestamp at = 10;
  reserved 11, 20 to 30;
  reserved "old";
}
message Other { fixed64 id = 1; }
""",
    "PROTOBUF",
)
JSON = WriterSchema('{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}', "JSON")


ORDERS = 'syntax = "proto3";\nmessage Order { string order_id = 1; int64 amount = 2; map<string, int64> parts = 3; }'


class Order(msgspec.Struct, frozen=True):
    order_id: str
    amount: int
    parts: dict[str, int]


@contextmanager
def own_home() -> Iterator[Settings]:
    """A home of its own, with ports that nobody has; what runs there is stopped in the end."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-schemas-") as folder:
        home = reachable(Path(folder)) / "home"
        settings = replace(own_settings(home), schema_registry_port=ports.free_ports(1)[0])
        try:
            yield settings
        finally:
            down(settings)


@pytest.fixture(scope="module")
def running() -> Iterator[Settings]:
    with own_home() as settings:
        stack = up(settings, only=[NAME], tethered=True)
        assert set(stack.started) == {"postgres", "registry", NAME}
        yield settings


def told(settings: Settings) -> Settings:
    """What the settings of a home say to whoever works there."""
    return Settings.from_environment({"DELTAWORKS_HOME": str(settings.home)}, cwd=settings.home)


def client(settings: Settings, *, password: str = "", register: bool = True, timeout: int | None = None) -> Registry:
    """A client of its own, which has asked for nothing yet."""
    login = schema_registry.credentials(settings)
    options: dict[str, object] = {"basic.auth.user.info": f"{login.user}:{password or login.password}"}
    if timeout is not None:
        options |= {"timeout": timeout, "max.retries": 0}
    _CLIENTS.append(Registry(login.url, options=options, register=register))
    return _CLIENTS[-1]


_CLIENTS: list[Registry] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """No client of a test keeps its connections."""
    yield
    while _CLIENTS:
        with _CLIENTS.pop()._client:
            pass


def process(settings: Settings) -> Status:
    return next(entry for entry in status(settings) if entry.name == NAME)


def fields(schema: WriterSchema) -> object:
    return json.loads(schema.text)["fields"]


def test_schemas_of_each_format_are_found_by_their_ids(running: Settings) -> None:
    numbers = {each.kind: client(running).id_of(f"{each.kind.lower()}-value", each) for each in (USER, PROTOBUF, JSON)}

    assert len(set(numbers.values())) == 3
    found = {kind: client(running).by_id(number) for kind, number in numbers.items()}
    assert {kind: each.kind for kind, each in found.items()} == {kind: kind for kind in numbers}
    assert fields(found["AVRO"]) == fields(USER)
    assert json.loads(found["JSON"].text) == json.loads(JSON.text)
    for each in (USER, PROTOBUF, JSON):
        again = client(running, register=False).id_of(f"{each.kind.lower()}-value", each)
        assert again == numbers[each.kind], "what is there is not registered again"


def test_nothing_of_a_protobuf_schema_is_lost(running: Settings) -> None:
    """Descriptors that this registry makes lack maps and `optional`; for enums it has none."""
    number = client(running).id_of("shop-value", SHOP)

    found = client(running).by_id(number)

    assert _compiled(found.text, (), {}) == _compiled(SHOP.text, (), {})
    assert [each.schema for each in client(running).versions("shop-value")] == [found]


def test_a_protobuf_schema_comes_with_what_it_imports(running: Settings) -> None:
    text = 'syntax = "proto3";\nimport "shop.proto";\nmessage Basket {\n  repeated shop.Order orders = 1;\n}\n'
    basket = WriterSchema(text, "PROTOBUF", (Reference("shop.proto", SHOP, "shop-value"),))
    number = client(running).id_of("baskets-value", basket)

    found = client(running).by_id(number)

    assert _compiled(found.text, (), found.referred) == _compiled(text, (), {"shop.proto": SHOP.text})


def test_descriptors_are_refused_which_is_why_serdes_register_text(running: Settings) -> None:
    """A limit of this registry: Confluent's takes descriptors, which their clients for Python register."""
    descriptor = base64.b64encode(_compiled(ORDERS, (), {})[-1]).decode()

    with pytest.raises(ConflictError, match="invalid schema: failed to compile protobuf"):
        client(running).id_of("descriptors-value", WriterSchema(descriptor, "PROTOBUF"))


def test_a_record_is_read_whose_protobuf_schema_was_registered_as_text(running: Settings) -> None:
    number = client(running).id_of("texts-value", WriterSchema(ORDERS, "PROTOBUF"))
    value = Order("o-1", 7, {"a": 1})
    body = Protobuf(Order, ORDERS).serialize(value)

    reader = bound(Protobuf(Order, ORDERS, registry=True), client(running), "texts", is_key=False)

    assert reader.deserialize(wire.header(number) + wire.indexes((0,)) + body) == value


def test_serdes_read_what_another_process_has_written(running: Settings) -> None:
    for serde in (Avro(Order, registry=True), JsonSchema(Order, registry=True), Protobuf(Order, ORDERS, registry=True)):
        topic = f"written-{serde.writer_schema.kind.lower()}"
        value = Order("o-1", 7, {"a": 1})

        data = bound(serde, client(running), topic, is_key=False).serialize(value)

        assert data[0] == 0
        assert bound(serde, client(running, register=False), topic, is_key=False).deserialize(data) == value


def test_a_wider_message_is_registered_and_read_by_an_older_one(running: Settings) -> None:
    wider = msgspec.defstruct("Order", [("order_id", str), ("amount", int), ("parts", dict[str, int]), ("note", str)])
    text = ORDERS.removesuffix("}") + " string note = 4; }"
    registered = [
        bound(each, client(running), "evolved", is_key=False)
        for each in (Protobuf(Order, ORDERS, registry=True), Protobuf(wider, text, registry=True))
    ]
    older = registered[0].serialize(Order("o-1", 7, {"a": 1}))
    newer = registered[1].serialize(wider("o-2", 8, {"b": 2}, "new"))

    assert wire.schema_id(older) != wire.schema_id(newer)
    assert registered[0].deserialize(newer) == Order("o-2", 8, {"b": 2})
    assert registered[1].deserialize(older) == wider("o-1", 7, {"a": 1}, "")


def test_the_newest_version_is_that_of_others_too(running: Settings) -> None:
    one, other = client(running), client(running)
    one.id_of("news-value", USER)
    assert [each.version for each in one.versions("news-value")] == [1]

    number = other.id_of("news-value", WIDER)

    latest = one.versions("news-value")[-1]
    assert (latest.id, latest.version) == (number, 2)


def test_references_are_registered_first_and_come_with_a_schema(running: Settings) -> None:
    number = client(running).id_of("orders-value", ORDER)

    found = client(running).by_id(number)

    assert [(each.name, each.subject, fields(each.schema)) for each in found.references] == [
        ("User", "users-value", fields(USER))
    ]


def test_the_newest_version_is_told_and_an_incompatible_one_refused(running: Settings) -> None:
    registry = client(running)
    registry.id_of("versions-value", USER)
    narrower = WriterSchema('{"type":"record","name":"User","fields":[{"name":"id","type":"int"}]}', "AVRO")
    number = registry.id_of("versions-value", WIDER)

    said = "it is not BACKWARD compatible with the versions that are there"
    assert registry.refusal("versions-value", narrower) == said
    with pytest.raises(ConflictError, match="refuses a schema of subject 'versions-value'"):
        registry.id_of("versions-value", narrower)

    latest = registry.versions("versions-value")[-1]
    assert (latest.id, latest.version, fields(latest.schema)) == (number, 2, fields(WIDER))
    assert registry.versions("nobody-value") == []


def test_what_would_be_refused_is_known_before(running: Settings) -> None:
    """Nothing is registered by asking."""
    registry = client(running)
    registry.id_of("asked-value", USER)

    assert registry.refusal("asked-value", WIDER) is None
    assert registry.refusal("unknown-value", ORDER) is None
    assert [each.version for each in registry.versions("asked-value")] == [1]
    assert registry.versions("unknown-value") == []
    closed = client(running, register=False)
    assert closed.refusal("asked-value", USER) is None
    assert "is not registered under subject 'asked-value'" in (closed.refusal("asked-value", WIDER) or "")
    broken = registry.refusal("asked-value", WriterSchema('{"type":"record"}', "AVRO")) or ""
    assert "refuses the compatibility of a schema of subject 'asked-value'" in broken
    registry._client.set_compatibility("asked-value", "NONE")
    assert registry.refusal("asked-value", WriterSchema('"string"', "AVRO")) is None


def test_who_works_in_the_home_reaches_it_with_its_settings(running: Settings, tmp_path: Path) -> None:
    found = SchemasOfSettings(told(running).values.table("schema_registry"), tmp_path)

    number = found.id_of("settings-value", USER)

    assert fields(found.by_id(number)) == fields(USER)


def test_another_password_is_refused(running: Settings) -> None:
    with pytest.raises(SchemasUnavailableError, match="answers 401"):
        client(running, password="wrong").id_of("foreign-value", USER)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{schema_registry.credentials(running).url}/subjects")
    assert client(running).versions("foreign-value") == []


def test_it_listens_on_this_machine_only_and_nothing_shows_a_password(running: Settings) -> None:
    pid = process(running).pid
    secrets = [file.read_text().strip() for file in (running.schema_registry / "secrets").iterdir()]

    assert listening(pid) == {("127.0.0.1", running.schema_registry_port)}
    assert len(secrets) == 2
    shown = [
        *psutil.Process(pid).cmdline(),
        log_of(running, NAME).read_text(),
        (running.schema_registry / "registry.yaml").read_text(),
        running.schema_registry_access_in(running.home).read_text(),
    ]
    assert not [text for text in shown if any(secret in text for secret in secrets)]


def test_it_is_ready_for_the_password_of_its_home_only(running: Settings, tmp_path: Path) -> None:
    assert schema_registry.answers(running)
    assert not schema_registry.answers(replace(running, home=tmp_path))


def test_another_home_does_not_start_one_on_the_same_port(running: Settings) -> None:
    port = running.schema_registry_port

    told = rf"Port {port}, where {NAME} should listen, is used by {NAME} of the"
    with own_home() as other, pytest.raises(StackError, match=told):
        up(replace(other, schema_registry_port=port), only=[NAME], tethered=True)
    assert process(running).state == "ready"


def test_while_it_is_away_kept_schemas_are_known_and_a_killed_one_comes_back_with_its_ids(
    running: Settings, tmp_path: Path
) -> None:
    known = {"kept-1": USER, "kept-2": ORDER}
    kept = Kept(tmp_path, client(running))
    numbers = {subject: kept.id_of(subject, each) for subject, each in known.items()}
    killed = process(running)
    own = psutil.Process(killed.pid)
    own.suspend()  # killed at once, it might be back before it is asked
    try:
        away = Kept(tmp_path, client(running, timeout=1))
        assert {subject: away.id_of(subject, each) for subject, each in known.items()} == numbers
        assert fields(away.by_id(numbers["kept-2"])) == fields(ORDER)
        with pytest.raises(SchemasUnavailableError, match="does not answer when asked for a schema of subject 'other'"):
            away.id_of("other", USER)
    finally:
        own.kill()

    await_restart(running, NAME, killed.pid)

    fresh = client(running, register=False)
    assert {subject: fresh.id_of(subject, each) for subject, each in known.items()} == numbers
    assert process(running).restarts == killed.restarts + 1


def test_it_comes_back_after_its_database_was_killed(running: Settings) -> None:
    number = client(running).id_of("survivors-value", USER)
    killed = next(entry for entry in status(running) if entry.name == "postgres")

    psutil.Process(killed.pid).kill()
    await_restart(running, "postgres", killed.pid)

    end = clock.ticks_s() + PATIENCE_S
    while not schema_registry.answers(running):
        assert clock.ticks_s() < end, process(running)
        time.sleep(0.05)
    assert client(running, register=False).id_of("survivors-value", USER) == number


def test_down_keeps_the_ids_lost_passwords_are_made_anew_and_deleted_data_is_gone() -> None:
    """Its database is made in a PostgreSQL that was there before."""
    with own_home() as settings:
        go_through_it(settings)


def go_through_it(settings: Settings) -> None:
    up(settings, only=["postgres"], tethered=True)
    up(settings, only=[NAME], tethered=True)
    numbers = [client(settings).id_of(f"{each.kind}-value", each) for each in (PROTOBUF, USER)]
    pid, before = process(settings).pid, schema_registry.credentials(settings)

    assert NAME in down(settings)
    assert not psutil.pid_exists(pid)
    assert ports.is_free(settings.schema_registry_port)

    for file in (settings.schema_registry / "secrets").iterdir():
        file.unlink()
    up(settings, only=[NAME], tethered=True)
    again = [client(settings, register=False).id_of(f"{each.kind}-value", each) for each in (PROTOBUF, USER)]
    assert again == numbers
    assert schema_registry.credentials(settings).password != before.password
    with pytest.raises(SchemasUnavailableError, match="answers 401"):
        client(settings, password=before.password).versions("USER-value")

    down(settings, delete_data=True)
    assert not settings.home.exists()


def test_roles_of_others_do_not_reach_its_tables(running: Settings) -> None:
    role = postgres.DATABASES[0]

    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(
            host="127.0.0.1",
            port=running.postgres_port,
            dbname=schema_registry.DATABASE,
            user=role,
            passfile=str(running.pgpass),
        )
