"""OpenSearch of the stack, as a sink uses it: documents have versions, so that a repetition changes nothing."""

from __future__ import annotations

import json
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import opensearch
from deltaworks.stack.lifecycle import down, status, up
from deltaworks.stack.ports import is_free
from tests.support.live_stack import await_restart, free_pair, kill_component, listening, reachable

NAME = "opensearch"
Line = dict[str, Any]


@pytest.fixture
def settings() -> Iterator[Settings]:
    """Not below pytest's own folder, which the server's user cannot enter under root."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-search-") as folder:
        settings = replace(own_settings(reachable(Path(folder)) / "home"), opensearch_port=free_pair())
        try:
            yield settings
        finally:
            down(settings)


def bulk(client: httpx.Client, *lines: Line) -> list[int]:
    """The status of each action."""
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    answer = client.post("/_bulk", content=text, headers={"Content-Type": "application/x-ndjson"})
    return [action["status"] for item in answer.json()["items"] for action in item.values()]


def at(version: int, id_: str, action: str = "index") -> Line:
    return {action: {"_index": "orders", "_id": id_, "version": version, "version_type": "external_gte"}}


def test_documents_with_versions_outlive_a_kill(settings: Settings) -> None:
    stack = up(settings, only=[NAME], tethered=True)
    assert stack.started == [NAME]
    assert stack.opensearch == f"http://127.0.0.1:{settings.opensearch_port}"
    where = {(address.removeprefix("::ffff:"), port) for address, port in listening(stack[NAME].pid)}
    assert where == {("127.0.0.1", port) for port in opensearch.ports(settings)}
    assert stat.S_IMODE(settings.opensearch.stat().st_mode) == 0o700
    owner = psutil.Process(stack[NAME].pid).username()
    assert owner == (opensearch.server_user() or psutil.Process().username())

    with httpx.Client(base_url=stack.opensearch, timeout=30) as client:
        assert client.put("/typo/_doc/1", json={"id": 1}).status_code == 404, "no index is made by itself"
        mappings = {"dynamic": "strict", "properties": {"id": {"type": "long"}, "item": {"type": "keyword"}}}
        made = client.put("/orders", json={"settings": {"number_of_replicas": 0}, "mappings": mappings})
        assert made.status_code == 200

        first = bulk(client, at(5, "a"), {"id": 1, "item": "tea"}, at(6, "b"), {"id": 2, "item": "jam"})
        again = bulk(client, at(5, "a"), {"id": 1, "item": "tea"}, at(4, "a"), {"id": 1, "item": "old"})
        mixed = bulk(client, at(7, "b", "delete"), at(6, "b"), {"id": 2}, at(8, "c"), {"id": "x"}, at(8, "d", "delete"))
        assert (first, again, mixed) == ([201, 201], [200, 409], [200, 409, 400, 404])

        await_restart(settings, NAME, kill_component(settings, NAME))
        assert client.get("/orders/_doc/a").json()["_source"] == {"id": 1, "item": "tea"}
        assert bulk(client, at(4, "a"), {"id": 1, "item": "old"}) == [409]
        assert client.post("/orders/_refresh").status_code == 200
        hits = client.get("/orders/_search", params={"q": "item:tea"}).json()["hits"]["hits"]
        assert [hit["_id"] for hit in hits] == ["a"]

    assert down(settings) == [NAME]
    assert all(map(is_free, opensearch.ports(settings)))
    down(settings, delete_data=True)
    assert not settings.home.exists()
    assert status(settings) == []
