"""`schema generate` and `schema check`, with a registry in memory."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from deltaworks import Avro, exits
from deltaworks.cli import app as cli
from deltaworks.kafka import schemas_of_settings
from deltaworks.serdes.schemas import InMemory, WriterSchema

JOB = """\
import msgspec
from deltaworks import Avro, Pipeline

class Order(msgspec.Struct, frozen=True):
    order_id: str
    amount: int

def topology(builder):
    builder.stream("orders", key=str, value=Avro(Order, registry=True)).to("copies")

pipeline = Pipeline(name="schemas_job", topology=topology)
"""
PROTO = 'syntax = "proto3"; package shop; message Order { string order_id = 1; } message Other { int64 x = 1; }'


class Order(msgspec.Struct, frozen=True):
    order_id: str
    amount: int


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    url = f"mock://{tmp_path.name}"
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "schemas_job.py").write_text(JOB)
    (tmp_path / "deltaworks.toml").write_text(f'[schema_registry]\nurl = "{url}"\n')
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path))
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [each for each in sys.modules if each.split(".")[0] == "jobs"]:
        monkeypatch.delitem(sys.modules, name)
    made = InMemory()
    monkeypatch.setattr(schemas_of_settings, "registry_of", lambda settings: made)
    return made


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["deltaworks", "schema", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_types_are_written_of_a_topic_of_the_registry_and_of_a_file(
    registry: InMemory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    registry.id_of("orders-value", Avro(msgspec.defstruct("Order", [("order_id", str)])).writer_schema)
    registry.id_of("orders-value", Avro(Order).writer_schema)

    assert call(monkeypatch, "generate", "orders") == exits.OK
    newest = capsys.readouterr().out
    assert call(monkeypatch, "generate", "orders-value", "--version", "1") == exits.OK
    assert "amount: int" in newest and "amount" not in capsys.readouterr().out
    (tmp_path / "order.proto").write_text(PROTO)
    assert call(monkeypatch, "generate", "order.proto", "--message", "shop.Other", "-o", "types.py") == exits.OK
    assert "class Other(msgspec.Struct" in (tmp_path / "types.py").read_text()
    assert call(monkeypatch, "generate", "order.proto", "--message", "shop.Order", "-o", "types.py") == exits.CONFIG
    assert "what is there is something else" in capsys.readouterr().err
    assert "class Other(msgspec.Struct" in (tmp_path / "types.py").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing",), "The schema registry has no subject 'nothing' or 'nothing-value'."),
        (("orders", "--version", "3"), "'orders' has no version 3 in the schema registry.\n  Hint: it has 1"),
        (("none.proto",), "There is no file none.proto."),
        (("order.proto",), "order.proto: message= says which one is meant of shop.Order, shop.Other"),
        (("order.proto", "--version", "1"), "--version is that of a subject, and a file has none."),
        (("broken.avsc",), "broken.avsc: "),
        (("json",), "json: types are generated of Avro and Protobuf"),
    ],
)
def test_what_has_no_types_is_named(
    registry: InMemory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
    said: str,
) -> None:
    registry.id_of("orders-value", Avro(Order).writer_schema)
    registry.id_of("json-value", WriterSchema('{"type":"object"}', "JSON"))
    (tmp_path / "order.proto").write_text(PROTO)
    (tmp_path / "broken.avsc").write_text('{"type":')

    assert call(monkeypatch, "generate", *words) == exits.CONFIG
    assert f"error: {said}" in capsys.readouterr().err


def test_a_pipeline_is_compared_without_changing_anything(
    registry: InMemory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    registry.id_of("orders-value", Avro(Order).writer_schema)

    assert call(monkeypatch, "check", "schemas_job") == exits.OK
    told = capsys.readouterr().out
    assert "values of topic 'orders'" in told and "copies-value" in told
    assert registry.versions("copies-value") == []
    assert not (tmp_path / "home").exists()

    registry.id_of("orders-value", Avro(msgspec.defstruct("Order", [("order_id", str)])).writer_schema)
    assert call(monkeypatch, "check", "schemas_job") == exits.CONFLICT
    assert "field 'amount' is not written, and has no default" in capsys.readouterr().err
