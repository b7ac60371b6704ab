"""Documents of a search index: what is there after retries, restarts and refusals."""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from deltaworks import Pipeline, SinkBatch, SinkRecord, SinkTask, StreamsBuilder, TimeWindows, TopologyError
from deltaworks.errors import ConfigurationError, IntentError, SinkError
from deltaworks.serdes.windowed import Windowed
from deltaworks.sinks import search
from deltaworks.testing import TopologyTestDriver
from deltaworks.topology.external import SearchIndex
from deltaworks.topology.nodes import CustomSink
from deltaworks.topology.sinks import SinkWriter
from tests.support.fake_search import DROPPED, DROPPED_AFTER, FakeSearch, fake_search

DAY_MS = 86_400_000


@pytest.fixture
def server() -> Iterator[FakeSearch]:
    with fake_search() as server:
        yield server


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltaworks.sinks.search._FIRST_PAUSE_S", 0.001)


def sink_of(server: FakeSearch, index: str = "orders", **settings: Any) -> SearchIndex:
    """The sink as the topology has it when a worker reads it."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=dict[str, Any]).to_search(index, **{"url": server.url, **settings})

    nodes = Pipeline(name="p", topology=topology).plan().nodes
    (node,) = [node for node in nodes if isinstance(node, CustomSink)]
    found = pickle.loads(pickle.dumps(node.sink))
    assert isinstance(found, SearchIndex)
    return found


def writer(sink: SearchIndex, generation: int = 1) -> SinkWriter[Any, Any]:
    return sink.open(SinkTask(pipeline="p", sink="s", task=0, checkpoint="c", generation=generation))


def record(key: Any, value: Any, timestamp_ms: int = 0) -> SinkRecord[Any, Any]:
    return SinkRecord(key, value, timestamp_ms, ())


def write(to: SinkWriter[Any, Any], batch: int, *records: SinkRecord[Any, Any]) -> list[str]:
    """Writes a batch; returns why records were refused."""
    assert to.committed() is None
    refused = to.write(SinkBatch(batch, f"i{batch}"), records) or ()
    to.prepare()
    to.commit()
    return [each.reason for each in refused]


def test_the_newest_value_of_each_key_is_its_document_and_none_deletes_it(server: FakeSearch) -> None:
    to = writer(sink_of(server))

    write(to, 0, record("a", {"n": 1}), record("b", {"n": 2}), record("a", {"n": 3}))
    write(to, 1, record("b", None), record("never there", None))

    assert server.documents == {"orders": {"a": {"n": 3}}}
    assert len(server.requests[0]) == 2, "only the newest of a key is sent"


@pytest.mark.parametrize("wrong", [429, 503, 500, DROPPED, DROPPED_AFTER])
def test_a_batch_is_sent_again_until_the_server_takes_it(server: FakeSearch, wrong: int | str) -> None:
    server.misbehaviour.extend([wrong, wrong])

    assert write(writer(sink_of(server)), 0, record("a", {"n": 1}), record("b", None)) == []

    assert server.documents["orders"] == {"a": {"n": 1}}


def test_only_documents_that_a_busy_server_has_left_out_are_sent_again(server: FakeSearch) -> None:
    server.busy.extend([0, 429, 503])

    write(writer(sink_of(server)), 0, *(record(f"k{n}", {"n": n}) for n in range(4)))

    assert [len(actions) for actions in server.requests] == [4, 2]
    assert server.documents["orders"] == {f"k{n}": {"n": n} for n in range(4)}


def test_a_server_that_never_takes_it_fails_the_batch(server: FakeSearch) -> None:
    server.misbehaviour.extend([503] * 1000)

    with pytest.raises(SinkError, match=r"have not taken 1 documents for 0.05 s: status 503"):
        write(writer(sink_of(server, patience=timedelta(milliseconds=50))), 0, record("a", {}))


def test_another_server_is_asked_where_one_is_down(server: FakeSearch) -> None:
    with fake_search() as gone:
        down = gone.url
    for _ in range(4):  # they begin anywhere
        write(writer(sink_of(server, url=[down, server.url])), 0, record("a", {"n": 1}))

    assert server.documents["orders"] == {"a": {"n": 1}}


def test_a_batch_that_runs_again_changes_nothing(server: FakeSearch) -> None:
    batch = (record("a", {"n": 1}), record("b", None), record("c", {"n": 1}))
    write(writer(sink_of(server)), 0, record("b", {"n": 0}))
    write(writer(sink_of(server)), 1, *batch)
    before = {**server.documents["orders"]}

    write(writer(sink_of(server)), 1, *batch)  # by a worker that knows nothing
    write(writer(sink_of(server), generation=2), 1, *batch)  # after a restart

    assert server.documents["orders"] == before == {"a": {"n": 1}, "c": {"n": 1}}


@pytest.mark.parametrize("newer", [None, {"n": 2}])
def test_what_a_worker_still_writes_that_was_believed_dead_replaces_nothing(
    server: FakeSearch, newer: dict[str, int] | None
) -> None:
    believed_dead = writer(sink_of(server))
    write(writer(sink_of(server)), 7, record("a", {"n": 1}))
    write(writer(sink_of(server)), 8, record("a", newer))

    assert write(believed_dead, 7, record("a", {"n": 1})) == []

    assert server.documents["orders"] == ({} if newer is None else {"a": newer})


def test_a_new_checkpoint_counts_from_zero_and_still_writes(server: FakeSearch) -> None:
    write(writer(sink_of(server)), 1_000_000, record("a", {"n": "old"}))

    write(writer(sink_of(server), generation=2), 0, record("a", {"n": "new"}))

    assert server.documents["orders"] == {"a": {"n": "new"}}


def test_a_generation_that_was_replaced_is_refused_and_not_ignored(server: FakeSearch) -> None:
    write(writer(sink_of(server), generation=3), 0, record("a", {"n": 3}))

    with pytest.raises(IntentError, match=r"of generation 3; this stream is generation 2"):
        write(writer(sink_of(server), generation=2), 9, record("a", {"n": 2}))

    assert server.documents["orders"] == {"a": {"n": 3}}


def test_versions_of_the_longest_streams_fit() -> None:
    task = SinkTask(pipeline="p", sink="s", task=0, checkpoint="c", generation=8_000_000)
    assert search.version(task, SinkBatch((1 << 40) - 1, "")) < 2**63
    later = SinkTask(pipeline="p", sink="s", task=0, checkpoint="d", generation=8_000_001)
    assert search.version(later, SinkBatch(0, "")) > search.version(task, SinkBatch((1 << 40) - 1, ""))


def test_a_document_that_the_index_refuses_gives_way_to_the_one_before(server: FakeSearch) -> None:
    to = writer(sink_of(server))
    write(to, 0, record("a", {"n": 1}))

    reasons = write(to, 1, record("a", {"n": 2}), record("a", {"n": "x"}), record("b", {"n": "y"}))

    assert server.documents["orders"] == {"a": {"n": 2}}
    assert sorted(reasons) == [
        f"index 'orders' refuses a document: document_parsing_exception: failed to parse field [n] of type [long] in "
        f"document with id '{name}' (For input string: \"{value}\")"
        for name, value in (("a", "x"), ("b", "y"))
    ]


def test_what_is_no_document_is_refused_before_it_is_sent(server: FakeSearch) -> None:
    reasons = write(
        writer(sink_of(server)),
        0,
        record("k" * 513, {}),
        record("", {}),
        record("\ud800", {}),
        record("a", {"n": {1: object()}}),
    )

    assert [reason.split(" of ")[0].split(":")[0] for reason in reasons] == [
        "a key gives an id",
        "a key gives an id",
        "a key is no text that an index takes",
        "a value",
    ]
    assert server.requests == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [(403, "cluster_block_exception"), (404, "index_not_found_exception"), (400, "validation_exception")],
)
def test_what_is_not_the_documents_fault_fails_the_batch(server: FakeSearch, status: int, kind: str) -> None:
    server.error = {"status": status, "error": {"type": kind, "reason": "none of them"}}

    with pytest.raises(SinkError, match=f"Index 'orders' takes no documents: status {status}: {kind}"):
        write(writer(sink_of(server)), 0, record("a", {}))


def test_requests_stay_within_their_limits_and_are_halved_where_the_server_takes_less(server: FakeSearch) -> None:
    write(writer(sink_of(server, batch_documents=3)), 0, *(record(f"k{n}", {"n": n}) for n in range(7)))
    assert [len(actions) for actions in server.requests] == [3, 3, 1]

    server.requests.clear()
    server.limit = 400
    reasons = write(
        writer(sink_of(server)), 1, *(record(f"k{n}", {"n": n}) for n in range(7)), record("l", {"s": "x" * 400})
    )

    assert len(server.documents["orders"]) == 7 and all(len(actions) <= 3 for actions in server.requests)
    assert len(reasons) == 1 and reasons[0].endswith("is too large for the server")


@pytest.mark.parametrize(
    ("settings", "header"),
    [
        ({"username": "u", "password": {"env": "SEARCH_PASSWORD"}}, "Basic " + b64encode(b"u:s3cret").decode()),
        ({"api_key": {"file": "FILE"}}, "ApiKey s3cret"),
    ],
)
def test_a_secret_is_read_where_it_is_used_and_shown_nowhere(
    server: FakeSearch, settings: dict[str, Any], header: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    if "api_key" in settings:
        settings = {"api_key": {"file": str(tmp_path / "key")}}
    sink = sink_of(server, **settings)
    server.authorization = header
    if "password" in settings:
        with pytest.raises(ConfigurationError, match=r"password= of to_search\('orders'\) refers to the variable"):
            writer(sink)
        monkeypatch.setenv("SEARCH_PASSWORD", "s3cret")

    write(writer(sink), 0, record("a", {"n": 1}))

    assert server.documents["orders"] == {"a": {"n": 1}}
    assert b"s3cret" not in pickle.dumps(sink) and "s3cret" not in repr(sink)


def test_a_wrong_password_is_said(server: FakeSearch) -> None:
    server.authorization = "Basic other"
    with pytest.raises(SinkError, match="status 401"):
        write(writer(sink_of(server)), 0, record("a", {}))


def test_documents_of_all_kinds_of_keys_and_values(server: FakeSearch) -> None:
    to = writer(sink_of(server, key_field="key", timestamp_field="@timestamp"))

    for number, each in enumerate(
        (
            record(7, 1.5, 61_005),
            record(("a", 1), {"price": Decimal("1.10"), "at": datetime(2026, 3, 1, tzinfo=UTC)}),
            record(Windowed("u", 0, 60_000), 3),
        )
    ):
        server.types.clear()
        assert write(to, number, each) == []

    assert server.documents["orders"] == {
        "7": {"value": 1.5, "key": 7, "@timestamp": "1970-01-01T00:01:01.005Z"},
        '["a",1]': {
            "price": "1.10",
            "at": "2026-03-01T00:00:00Z",
            "key": ["a", 1],
            "@timestamp": "1970-01-01T00:00:00.000Z",
        },
        "u@0-60000": {
            "window_start": "1970-01-01T00:00:00.000Z",
            "window_end": "1970-01-01T00:01:00.000Z",
            "value": 3,
            "key": "u",
            "@timestamp": "1970-01-01T00:00:00.000Z",
        },
    }


def test_an_index_per_date_is_that_of_the_record_or_of_the_start_of_its_window(server: FakeSearch) -> None:
    to = writer(sink_of(server, "orders-{date}"))

    write(to, 0, record("a", {}, DAY_MS), record("a", {}, 2 * DAY_MS), record(Windowed("w", 0, 5), {}, 9 * DAY_MS))

    assert {index: [*documents] for index, documents in server.documents.items()} == {
        "orders-1970.01.02": ["a"],
        "orders-1970.01.03": ["a"],
        "orders-1970.01.01": ["w@0-5"],
    }


def test_a_table_sends_its_updates_and_deletes() -> None:
    def topology(builder: StreamsBuilder) -> None:
        table = builder.table("in", key=str, value=int, store="t")
        table.filter(lambda _, value: value > 1).to_search("big", url="http://h:9200")
        counts = (
            table.to_stream()
            .group_by_key()
            .windowed_by(TimeWindows(size=timedelta(minutes=1), grace=timedelta(0)))
            .count(store="c")
        )
        counts.to_search("counts-{date}", url="http://h:9200")

    driver = TopologyTestDriver(Pipeline(name="p", topology=topology))
    driver.create_input_topic("in").pipe_key_value_list([("a", 1), ("a", 2), ("a", 1)])

    assert [(each.key, each.value) for each in driver.sink("search-big")] == [("a", 2), ("a", None)]
    assert [(each.key, each.value) for each in driver.sink("search-counts-{date}")] == [
        (Windowed("a", 0, 60_000), n) for n in (1, 2, 3)
    ]


def test_a_record_without_a_key_is_a_dead_letter() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=str).to_search("orders", url="http://h:9200")

    driver = TopologyTestDriver(Pipeline(name="p", topology=topology, on_error="continue"))
    driver.create_input_topic("in").pipe_key_value_list([(None, "x"), ("a", "y")])

    assert [each.value for each in driver.sink("search-orders")] == ["y"]
    (letter,) = driver.dead_letters
    assert "has no key" in letter.message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.to_search("Orders", url="http://h"), "cannot have this name"),
        (lambda s: s.to_search("o", url="http://u:secret@h"), "has a password in it"),
        (lambda s: s.to_search("o", url="h:9200"), "is no address"),
        (lambda s: s.to_search("o", url="http://h", username="u", password="secret"), "is a secret"),
        (lambda s: s.to_search("o", url="http://h", username="u"), "belong together"),
        (lambda s: s.to_search("o", url="http://h", api_key={"vault": "x"}), "neither a text nor a reference"),
        (lambda s: s.to_search("o", url="http://h", batch_documents=0), "batch_documents= is 0"),
        (lambda s: s.to_search("o", url="http://h", timeout=3), "timeout= of"),
        (lambda s: s.to_search("o", url=[]), "url= is empty"),
        (lambda s: s.to_table(store="t").to_search("o-{date}", url="http://h"), "leave its old document behind"),
    ],
)
def test_a_call_that_cannot_work_is_refused_where_it_is(call: Callable[[Any], None], message: str) -> None:
    builder = StreamsBuilder()

    with pytest.raises(TopologyError, match=message) as raised:
        call(builder.stream("in", key=str, value=str))
        builder.build()

    assert "secret" not in str(raised.value).replace("is a secret", "")
