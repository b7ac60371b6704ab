"""Tasks of a cycle become durable together: table, topic and stores say the same, whatever fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks import Pipeline, StreamsBuilder
from deltaworks.errors import KafkaWriteError, StateError
from deltaworks.lakehouse.catalog import duckdb_connection
from deltaworks.runtime import shard
from deltaworks.runtime.state.recovery import next_version
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka, MemorySink

ORDERS, USERS = 12, 10
Rows = list[tuple[str, str]]


def cycle(builder: StreamsBuilder) -> None:
    """How many orders there are of a key, beside the name of a user: the foreign key leads to another task and back."""
    counts = builder.stream("orders", key=str, value=str).group_by_key().count(store="counts")
    users = builder.table("users", key=str, value=str, store="users")
    joined = counts.left_join(
        users,
        lambda n, name: f"{n}:{name}",
        foreign_key=lambda key, _: f"u{key[-1]}",
        value=str,
        store="joined",
        name="by-user",
    )
    joined.to_stream().to("out")
    joined.to_delta("joined")


pipeline = Pipeline(name="cycle", topology=cycle, record_cache=False)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path)


def topics() -> MemoryKafka:
    kafka = MemoryKafka({"orders": 2, "users": 2, "out": 1})
    for number in range(ORDERS):
        kafka.write("orders", RawRecord(f"o{number}".encode(), b"x", 1000 + number))
    for number in range(USERS):
        kafka.write("users", RawRecord(f"u{number}".encode(), f"n{number}".encode(), 500))
    return kafka


@contextmanager
def failing(commits: set[int]) -> Iterator[list[int]]:
    """The transactions with these numbers fail; the numbers of those that were tried."""
    tried: list[int] = []
    commit = MemorySink.commit

    def counted(sink: MemorySink) -> None:
        tried.append(len(tried) + 1)
        if tried[-1] in commits:
            raise KafkaWriteError("the broker did not answer")
        commit(sink)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemorySink, "commit", counted)
        yield tried


def run(settings: Settings, fail: set[int], points: list[str]) -> tuple[Rows, Rows, set[int], int]:
    """The last rows in the topic, those in the table, the counts in the stores, how often it was tried to commit."""
    kafka = topics()
    stream = InProcessStream(pipeline, settings, kafka=kafka)
    with failing(fail) as tried:
        while stream.batch_id == 0:  # Spark tries a batch again that has failed
            with suppress(KafkaWriteError):
                stream.run(stream.end(), points)
    topic = {(record.key or b"").decode(): (record.value or b"").decode() for _, _, record in kafka.read("out")}
    assert len(kafka.read("out")) == len({*kafka.sent["out"]}), "a record is there twice"
    stores: list[Any] = [kernel.stores["counts"] for kernel in stream.kernels().values() if "counts" in kernel.stores]
    counts = {store.get(f"o{n}") for store in stores for n in range(ORDERS)} - {None}
    stream.committer.refresh_snapshots(force=True)
    with duckdb_connection(stream.settings.tables) as connection:
        table: Any = connection.execute("SELECT key, value FROM joined ORDER BY 1").fetchall()
        assert connection.execute("SELECT count(*) FROM joined_changelog").fetchall() == [(len(kafka.read("out")),)]
    stream.close()
    return sorted(topic.items()), table, counts, len(tried)


EXPECTED = sorted((f"o{n}", f"1:n{n % 10}") for n in range(ORDERS))


@pytest.mark.parametrize("fail", [set(), {1}, {2}, {3}, {1, 2}, {2, 3}, {1, 2, 3, 4}, {2, 3, 4}], ids=str)
@pytest.mark.parametrize(
    "point", [None, "task.tables_written", "store.after_append", "store.after_version", "task.end"]
)
def test_whichever_member_cannot_commit_every_order_counts_once(
    settings: Settings, fail: set[int], point: str | None
) -> None:
    topic, table, counts, tried = run(settings, fail, [] if point is None else [point])
    assert (topic, table, counts) == (EXPECTED, EXPECTED, {1})
    assert tried >= 2


def test_the_second_member_is_retried_when_the_first_is_committed(settings: Settings) -> None:
    """The case that counted twice: its first member is recognised, and does not go on from its own result."""
    assert run(settings, {2}, [])[3] == 3


def test_a_member_whose_store_was_written_by_somebody_else_makes_nothing_durable(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = topics()
    stream = InProcessStream(pipeline, settings, kafka=kafka)
    stream.run({topic: dict.fromkeys(parts, 1) for topic, parts in stream.end().items()})
    before = dict(kafka.markers), len(kafka.read("out"))
    turn, late = shard._TaskRun.turn, [True]

    def disturbed(self: shard._TaskRun, *args: object, **options: object) -> object:
        if late and late.pop():
            local = self._hosted.local
            local.rebuild(iter(()), next_version(self._header), local.version())
        return turn(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(shard._TaskRun, "turn", disturbed)
    with pytest.raises(StateError, match="another process has written it meanwhile"):
        stream.run(stream.end())
    assert (dict(kafka.markers), len(kafka.read("out"))) == before
    stream.run(stream.end())
    assert {(r.key, r.value) for r in kafka.sent["out"]} >= {(k.encode(), v.encode()) for k, v in EXPECTED}
    stream.close()
