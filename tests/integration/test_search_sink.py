"""Documents of a sink in a real OpenSearch: what the fake server of the unit tests says, it says, too."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import urllib3

from deltaworks import Pipeline, SinkBatch, SinkRecord, SinkTask, StreamsBuilder
from deltaworks.errors import IntentError, SinkError
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.sinks.row_changes import RowChanges
from deltaworks.sinks.search_corrections import SearchCorrections
from deltaworks.stack.lifecycle import down, up
from deltaworks.topology.external import SearchIndex
from deltaworks.topology.nodes import CustomSink
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from tests.support import live_stack

pytestmark = pytest.mark.slow  # tests/unit/sinks has them on a server of the tests, make check-connect on the real one

MAPPING = {"mappings": {"properties": {"n": {"type": "long"}}}}


class Server:
    """What tests ask the server themselves."""

    def __init__(self, url: str) -> None:
        self.url, self._pool = url, urllib3.PoolManager(retries=False)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        answer = self._pool.request(method, self.url + path, body=data, headers={"Content-Type": "application/json"})
        assert answer.status < 300, answer.data
        return answer.json()

    def documents(self, index: str = "orders") -> dict[str, Any]:
        self.ask("POST", f"/{index}/_refresh")
        hits = self.ask("GET", f"/{index}/_search?size=10000")["hits"]["hits"]
        return {hit["_id"]: hit["_source"] for hit in hits}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Not below pytest's own folder, which the server's user cannot enter under root."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-search-") as folder:
        home = own_settings(live_stack.reachable(Path(folder)) / "home")
        settings = replace(home, opensearch_port=live_stack.free_pair())
        try:
            stack = up(settings, only=["opensearch"], tethered=True)
            assert stack.opensearch is not None
            yield Server(stack.opensearch)
        finally:
            down(settings)


def write(server: Server, generation: int, batch: int, *records: tuple[str, Any], index: str = "orders") -> list[str]:
    """Writes a batch as a worker that knows nothing; returns why records were refused."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=dict[str, Any]).to_search(index, url=server.url)

    (node,) = [node for node in Pipeline(name="p", topology=topology).plan().nodes if isinstance(node, CustomSink)]
    to = node.sink.open(SinkTask(pipeline="p", sink="s", task=0, checkpoint="c", generation=generation))
    try:
        refused = to.write(SinkBatch(batch, "i"), [SinkRecord(key, value, 0, ()) for key, value in records])
        return [each.reason for each in refused or ()]
    finally:
        to.close()


def test_documents_are_exact_in_a_real_server(server: Server) -> None:
    server.ask("PUT", "/orders", MAPPING)
    first = [("a", {"n": 1}), ("b", {"n": 1}), ("a", {"n": 2}), ("never there", None)]
    assert write(server, 1, 0, *first) == []
    assert write(server, 1, 0, *first) == []
    assert server.documents() == {"a": {"n": 2}, "b": {"n": 1}}

    assert write(server, 1, 1, ("b", None), ("c", {"n": 3})) == []
    assert write(server, 1, 0, *first) == [], "of a worker that was believed dead"
    assert server.documents() == {"a": {"n": 2}, "c": {"n": 3}}

    assert write(server, 2, 0, ("a", {"n": 9})) == [], "a new checkpoint counts from zero"
    with pytest.raises(IntentError, match="of generation 2; this stream is generation 1"):
        write(server, 1, 7, ("a", {"n": 1}))
    assert server.documents() == {"a": {"n": 9}, "c": {"n": 3}}


def test_corrections_come_between_what_a_stream_has_written_and_what_it_writes(server: Server) -> None:
    table = DeltaSink(name="n", table="t", kind=TableKind.CHANGELOG, key=str, value=int)
    server.ask("PUT", "/corrected", {"mappings": {}})
    write(server, 1, 7, ("a", {"value": 1}), ("b", {"value": 1}), ("gone", {"value": 1}), index="corrected")
    write(server, 1, 9, ("later", {"value": 9}), index="corrected")
    write(server, 2, 8, ("other start", {"value": 8}), index="corrected")

    def correct(generation: int, now: dict[str, int], gone: tuple[str, ...] = ()) -> list[str]:
        def rows(cells: dict[str, int]) -> pa.Table:
            times = pa.array([0] * len(cells), pa.timestamp("us", tz="UTC"))
            keys, values = pa.array(list(cells), pa.string()), pa.array(list(cells.values()), pa.int64())
            return pa.table({"key": keys, "value": values, "timestamp": times})

        def topology(builder: StreamsBuilder) -> None:
            builder.stream("in", key=str, value=int).to_search("corrected", url=server.url)

        (node,) = [node for node in Pipeline(name="p", topology=topology).plan().nodes if isinstance(node, CustomSink)]
        assert isinstance(node.sink, SearchIndex)
        task = SinkTask(pipeline="p", sink="s", task=0, checkpoint="", generation=generation)
        corrections = SearchCorrections(node.sink, table, task)
        try:
            return corrections.correct(8, RowChanges(rows(now), rows(dict.fromkeys(gone, 0))))
        finally:
            corrections.close()

    now = {"a": 10, "new": 10, "later": 10, "other start": 10}
    for _ in range(2):  # the first one was killed
        assert correct(1, now, ("gone", "never there")) == []
    expected = {"a": {"value": 10}, "b": {"value": 1}, "new": {"value": 10}}
    assert server.documents("corrected") == expected | {"later": {"value": 9}, "other start": {"value": 8}}

    write(server, 1, 9, ("a", {"value": 2}), index="corrected")
    assert correct(1, now) == []
    assert server.documents("corrected")["a"] == {"value": 2}
    assert correct(2, {"a": 10}) == []
    assert server.documents("corrected")["a"] == {"value": 10}, "of a newer start"


def test_what_a_real_server_refuses_is_recognised(server: Server) -> None:
    server.ask("PUT", "/mapped", MAPPING)

    reasons = write(server, 1, 0, ("a", {"n": 1}), ("a", {"n": "no number"}), ("k" * 512, {"n": 2}), index="mapped")

    assert len(reasons) == 1 and "mapper_parsing_exception: failed to parse field [n] of type [long]" in reasons[0]
    assert server.documents("mapped") == {"a": {"n": 1}, "k" * 512: {"n": 2}}
    with pytest.raises(SinkError, match="Index 'nowhere' takes no documents: status 404: index_not_found_exception"):
        write(server, 1, 0, ("a", {}), index="nowhere")
    assert write(server, 1, 0, ("a", None), index="nowhere") == []
