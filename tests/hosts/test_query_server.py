"""The stores of a stream over HTTP: answers, pages, what is refused, and keys that are followed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from deltaworks import Materialized, Pipeline, StreamsBuilder
from deltaworks.errors import ConfigurationError
from deltaworks.queries.kinds import Stream
from deltaworks.query_server import access, store_changes
from deltaworks.query_server.app import application
from deltaworks.query_server.changes import changes
from deltaworks.query_server.following import Followers
from deltaworks.query_server.streams import Streams
from deltaworks.topology.windows import TimeWindows
from tests.hosts.test_queries import AT_ONCE, Counting

COUNTS = "/pipelines/counting/stores/counts"


def counting(builder: StreamsBuilder) -> None:
    keyed = builder.stream("in", key=str, value=str).group_by_key()
    keyed.count(store="counts").to_stream().to("out")
    keyed.windowed_by(TimeWindows(size=timedelta(minutes=1), grace=timedelta(0))).count(store="windows")
    builder.table("other", key=str, value=str, store=Materialized("versions", history=timedelta(hours=1)))


pipeline = Pipeline(name="counting", topology=counting)


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Counting]:
    made = Counting(tmp_path, pipeline)
    made.batch("a", "b", "b", "c/d")
    yield made
    made.close()


@contextmanager
def served(stream: Counting, allowed: access.Access | None = None, patience_s: float = 0) -> Iterator[TestClient]:
    def opened(name: str) -> Stream:
        return Stream(stream.pipeline, stream.settings, patience=AT_ONCE)

    stream.lose_worker()
    streams = Streams(lambda: ["counting"], opened, patience_s=patience_s)
    with TestClient(application(streams, allowed or access.Access())) as client:
        yield client


def test_a_value_comes_with_the_batch_that_it_is_of(stream: Counting) -> None:
    with served(stream) as client:
        answer = client.get(f"{COUNTS}/keys/b")

        assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
        found = answer.json()
        assert (found["value"], found["timestamp_ms"], found["as_of"]["batch"]) == (2, 1000, 0)
        assert sum(found["as_of"]["offsets"]["in"].values()) == 4
        assert client.get(f"{COUNTS}/keys/nobody").json()["value"] is None
        assert client.get(f"{COUNTS}/keys/c%2Fd").json()["value"] == 1


def test_several_values_are_of_one_batch(stream: Counting) -> None:
    with served(stream) as client:
        answer = client.post(f"{COUNTS}/keys", json=["b", "nobody", "a"]).json()

        assert [each and each["value"] for each in answer["entries"]] == [2, None, 1]
        assert answer["as_of"]["batch"] == 0
        for body, status in (([1], 400), ({}, 400), (["a"] * 1001, 400), (["a"] * 1000, 200)):
            assert client.post(f"{COUNTS}/keys", json=body).status_code == status
        assert client.post(f"{COUNTS}/keys", content=b" " * 5_000_000).status_code == 400


def test_pages_follow_each_other(stream: Counting) -> None:
    with served(stream) as client:

        def keys(**parameters: Any) -> list[str]:
            found, after = [], None
            while True:
                given = parameters | ({} if after is None else {"after": after})
                page = client.get(f"{COUNTS}/entries", params={"limit": 2, **given}).json()
                found += [row["key"] for row in page["rows"]]
                after = page["next"]
                if after is None:
                    return found

        assert keys() == ["a", "b", "c/d"]
        assert keys(reverse="true") == ["c/d", "b", "a"]
        assert keys(**{"from": "b"}) == ["b", "c/d"]
        assert keys(to="b") == ["a", "b"]
        assert keys(prefix="c") == ["c/d"]


def test_windows_are_asked_by_key_and_by_time(stream: Counting) -> None:
    windows = "/pipelines/counting/stores/windows/windows"
    with served(stream) as client:
        assert [row["value"] for row in client.get(f"{windows}/b").json()["rows"]] == [2]
        assert [row["key"] for row in client.get(windows).json()["rows"]] == ["a", "b", "c/d"]
        assert client.get(windows, params={"from_ms": "1970-01-01T00:01:00Z"}).json()["rows"] == []
        assert client.get(windows, params={"from_ms": "1970-01-01T00:01:00"}).status_code == 400


def test_what_there_is_to_ask(stream: Counting) -> None:
    with served(stream) as client:
        assert client.get("/health").json()["status"] == "ok"
        assert client.get("/pipelines").json() == ["counting"]
        stores = {each["store"]: each["kind"] for each in client.get("/pipelines/counting/stores").json()}
        assert stores == {"counts": "key-value", "windows": "window", "versions": "versioned"}
        assert client.get(COUNTS).json()["tasks"] == 2
        assert client.get(f"{COUNTS}/stats").json()["entries"] == 3
        where = client.get(f"{COUNTS}/metadata/b").json()
        assert where["task"] == client.get(f"{COUNTS}/keys/b").json()["task"]


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/pipelines/countign/stores/counts/keys/a", 404, "did you mean 'counting'"),
        ("/pipelines/counting/stores/count/keys/a", 404, "counts"),
        ("/pipelines/counting/stores/windows/keys/a", 400, "window store"),
        (f"{COUNTS}/windows/a", 400, "/keys"),
        (f"{COUNTS}/entries?limit=1001", 400, "1 to 1,000"),
        (f"{COUNTS}/entries?limit=0", 400, "1 to 1,000"),
        (f"{COUNTS}/entries?reverse=yes", 400, "true or false"),
        (f"{COUNTS}/entries?lmit=3", 400, "did you mean 'limit'"),
        (f"{COUNTS}/entries?after=here", 400, "next"),
        (f"{COUNTS}/entries?prefix=a&to=b", 400, "not both"),
        (f"{COUNTS}/entries?from=b&to=a", 400, "comes after"),
        (f"{COUNTS}/keys/a?min_batch=-1", 400, "from 0"),
        (f"{COUNTS}/keys/a?min_batch=1", 503, "batch 1 is not committed"),
        ("/pipelines/counting/stores/versions/changes", 400, "follow its keys"),
        ("/pipelines/counting", 404, "openapi.json"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(stream: Counting, path: str, status: int, says: str) -> None:
    with served(stream) as client:
        answer = client.get(path)

        assert answer.status_code == status
        assert says in answer.text
        assert ("retry-after" in answer.headers) == (status == 503)


def test_a_batch_that_is_not_committed_is_not_shown(stream: Counting) -> None:
    stream.batch("b", is_committed=False)

    with served(stream) as client:
        assert client.get(f"{COUNTS}/keys/b").json()["value"] == 2
        stream.commit()
        assert client.get(f"{COUNTS}/keys/b", params={"min_batch": 1}).json()["value"] == 3


def test_clients_read_what_they_may(stream: Counting, tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    token = access.add_client(file, "dashboard", ("counting/counts",))
    other = access.add_client(file, "other", ("orders/*",))
    operator = access.add_client(file, "operator", ("*",))
    clients = access.read(file)

    with served(stream, access.Access(clients)) as client:

        def status(path: str, token: str | None) -> int:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            return client.get(path, headers=headers).status_code

        assert status(f"{COUNTS}/keys/a", token) == 200
        assert status("/pipelines/counting/stores/windows/windows/a", token) == 403
        assert status("/pipelines/counting/stores/nothing/keys/a", token) == 403
        assert status(f"{COUNTS}/changes/a", other) == status("/pipelines/counting/stores", other) == 403
        for path in ("/pipelines", "/pipelines/counting/stores", COUNTS, f"{COUNTS}/keys/a", f"{COUNTS}/changes/a"):
            assert status(path, None) == status(path, "x") == status(path, clients["other"].sha256) == 401
        assert status("/metrics", None) == 401 and status("/metrics", token) == status("/metrics", other) == 403
        assert status("/metrics", operator) == 200
        assert client.get("/pipelines", headers={"Authorization": f"Bearer {other}"}).json() == []
        found = client.get("/pipelines/counting/stores", headers={"Authorization": f"Bearer {token}"}).json()
        assert [each["store"] for each in found] == ["counts"]


def test_a_client_that_asks_too_often_is_told_to_wait(stream: Counting) -> None:
    with served(stream, access.Access(rate=3)) as client:
        answers = [client.get(f"{COUNTS}/keys/a").status_code for _ in range(20)]
        last = client.get(f"{COUNTS}/keys/a")

    assert answers[:3] == [200] * 3 and 429 in answers
    assert last.headers.get("retry-after") == "1"


def test_the_document_describes_every_path(stream: Counting) -> None:
    with served(stream) as client:
        document = client.get("/openapi.json").json()

    paths = {path.removeprefix("/pipelines/{pipeline}/stores/{store}") for path in document["paths"]}
    assert {
        "/pipelines",
        "/pipelines/{pipeline}/stores",
        "",
        "/keys",
        "/keys/{key}",
        "/entries",
        "/changes/{key}",
        "/windows/{key}",
    } <= paths
    assert document["paths"]["/pipelines/{pipeline}/stores/{store}/keys"].keys() == {"post"}
    assert "AsOf" in document["components"]["schemas"]


def test_what_the_server_says_of_itself(stream: Counting) -> None:
    with served(stream) as client:
        for path in ("keys/a", "keys/b", "keys", "entries?limit=0", "stats"):
            client.get(f"{COUNTS}/{path}")
        for name in ("guess-1", "guess-2"):
            client.get(f"/pipelines/{name}/stores/{name}/keys/a")
        client.get(f"{COUNTS}/keys/a?min_batch=9")
        answers = [client.get("/metrics", headers={"Accept": kind}) for kind in ("", "application/openmetrics-text")]

    assert [answer.headers["content-type"].split(";")[0] for answer in answers] == [
        "text/plain",
        "application/openmetrics-text",
    ]
    found = {
        (sample.labels["pipeline"], sample.labels["store"], sample.labels["question"], sample.labels["status"]): (
            sample.value
        )
        for family in text_string_to_metric_families(answers[0].text)
        for sample in family.samples
        if sample.name == "deltaworks_query_requests_total"
    }
    assert found == {
        ("counting", "counts", "keys of a key", "200"): 2,
        ("counting", "counts", "keys of a key", "503"): 1,
        ("counting", "counts", "entries", "400"): 1,
        ("counting", "counts", "stats", "200"): 1,
        ("", "", "keys of a key", "404"): 2,
    }
    assert "deltaworks_query_followers 0.0" in answers[0].text
    assert 'deltaworks_query_duration_seconds_bucket{le="+Inf",pipeline="counting"' in answers[0].text


def test_windows_of_a_key_are_followed(stream: Counting) -> None:
    async def ask(min_batch: int | None) -> Any:
        with stream.asked() as opened:
            return opened.store("windows").changes(min_batch=min_batch)

    async def follow() -> None:
        followers = Followers()
        watched = followers.watched("windows", lambda: store_changes.Batches(ask))
        told = store_changes.events(watched, None, store_changes.OneKey("b"))
        first = await anext(told)
        assert first.startswith(b"event: changes\nid: 0:0\n") and b'"key":"b","start_ms":0,' in first
        assert b'"value":2' in first and b'"key":"a"' not in first
        stream.batch("a")
        assert await anext(told) == b"id: 1:0\n\n", "what others change is no event"
        await told.aclose()
        while len(watched.remembered) < 2:
            await asyncio.sleep(0.01)
        stream.batch("b")
        again = store_changes.events(watched, (1, 0), store_changes.OneKey("b"))
        assert b'"value":3' in await anext(again)
        await again.aclose()
        await followers.close()

    asyncio.run(follow())


def test_a_key_is_followed_and_each_change_told_once(stream: Counting) -> None:
    def last_batch() -> int | None:
        with stream.asked() as opened:
            return opened.last_batch()

    async def ask() -> Any:
        with stream.asked() as opened:
            return opened.store("counts").get("b")

    async def follow() -> None:
        followers = Followers()
        async with aclosing(changes(followers, "counting", last_batch, ask, None)) as events:
            ids.append(id_of(await anext(events)))
            stream.batch("a")  # a batch that does not change it
            stream.batch("b")
            told = await anext(events)
            assert b'"value":3' in told and b'"batch":2' in told
            ids.append(id_of(told))
        again = changes(followers, "counting", last_batch, ask, ids[-1])
        later = changes(followers, "counting", last_batch, ask, ids[0])
        async with aclosing(again) as nothing_new, aclosing(later) as missed:
            assert b'"value":3' in await anext(missed)
            stream.batch("b")
            assert b'"value":4' in await anext(nothing_new), "what the client has seen is not told again"
        assert followers.number == 0
        await followers.close()

    def id_of(event: bytes) -> str:
        return event.split(b"\n")[0].removeprefix(b"id: ").decode()

    ids: list[str] = []
    asyncio.run(follow())


def test_events_end_when_the_stream_cannot_be_read_any_more() -> None:
    def last_batch() -> int | None:
        raise ConfigurationError("The stores were closed.")

    async def ask() -> None:
        pass

    async def follow() -> list[bytes]:
        followers = Followers()
        found = [event async for event in changes(followers, "counting", last_batch, ask, None)]
        await followers.close()
        return found

    assert asyncio.run(follow()) == []


class Followed:
    """Events of a store, as a client gets them."""

    def __init__(self, stream: Counting, watched: Any, place: str | None = None) -> None:
        seen = None if place is None else store_changes.place_of(place)
        self.stream, self.events = stream, store_changes.events(watched, seen)
        self.id = place

    async def next(self) -> tuple[str, dict[str, int | None]]:
        """Its kind, and keys with their values."""
        kind, id, data = (line.partition(b": ")[2].decode() for line in (await anext(self.events)).splitlines()[:3])
        self.id = id
        return kind, {row["key"]: row["value"] for row in json.loads(data).get("rows", ())}


def test_a_store_is_followed_and_each_change_told_once(stream: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_changes, "_ROWS", 2)

    async def ask(min_batch: int | None) -> Any:
        with stream.asked() as opened:
            return opened.store("counts").changes(min_batch=min_batch)

    async def follow() -> None:
        followers = Followers()
        watched = followers.watched("counts", lambda: store_changes.Batches(ask))
        first = Followed(stream, watched)
        assert await first.next() == ("changes", {"a": 1, "b": 2})
        half = first.id
        assert await first.next() == ("changes", {"c/d": 1})
        stream.batch("b")
        assert await first.next() == ("changes", {"b": 3})
        await first.events.aclose()
        stream.batch("a")
        while len(watched.remembered) < 3:  # it is looked at although nobody follows
            await asyncio.sleep(0.01)

        again, from_half = Followed(stream, watched, first.id), Followed(stream, watched, half)
        assert await again.next() == ("changes", {"a": 2})
        assert [await from_half.next() for _ in range(3)] == [
            ("changes", {"c/d": 1}), ("changes", {"b": 3}), ("changes", {"a": 2}),
        ]  # fmt: skip
        stream.batch("a")
        stream.batch("b")  # before anybody has looked
        assert await again.next() == ("gap", {})
        stream.batch("a")
        assert await again.next() == ("changes", {"a": 4})
        for each in (again, from_half):
            await each.events.aclose()
        assert followers.number == 0
        await followers.close()

    asyncio.run(follow())


def test_a_place_that_is_none_and_a_store_that_is_no_table_are_refused(stream: Counting) -> None:
    with served(stream) as client:
        for store, id, says in (
            ("counts", "17", "not the id"),
            ("counts", "a:b", "not the id"),
            ("windows", "x", "not the id"),
            ("versions", "1:1", "is versioned"),
        ):
            answer = client.get(f"/pipelines/counting/stores/{store}/changes", headers={"Last-Event-ID": id})
            assert answer.status_code == 400 and says in answer.text
