"""Stores beside executors: tasks wander, servers die, and nobody is answered who has not the driver's token."""

from __future__ import annotations

import importlib.util
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from deltaworks.control import served
from deltaworks.errors import StoreUnavailableError
from deltaworks.kernel.partitioning import partition_of
from deltaworks.queries import remote
from deltaworks.queries.sources import Announced
from deltaworks.runtime.state import store_process, store_requests
from deltaworks.runtime.state.local_store import discard
from deltaworks.runtime.state.store_process import StoreServing
from tests.hosts.test_queries import EXECUTORS, TOLD, Counting

FIRST = next(key for key in "abcdefgh" if partition_of(key.encode(), 2) == 0)
SECOND = next(key for key in "abcdefgh" if partition_of(key.encode(), 2) == 1)


@pytest.fixture(params=[EXECUTORS])
def stream(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    monkeypatch.setattr(Counting, "where", request.param)
    monkeypatch.setattr("deltaworks.queries.stream.source_of", Announced)
    with closing(Counting(tmp_path)) as made:
        yield made


def test_a_task_that_comes_back_is_not_read_from_the_store_that_it_had_left(stream: Counting) -> None:
    """It has nothing to do there, so only the driver's question for its store notices."""
    stream.batch(FIRST, SECOND)
    stream.lose_worker()
    here, kept = stream.paths.current.local, stream.paths.current.local.with_name("kept")
    here.rename(kept)
    stream.lose_worker()
    stream.batch(FIRST, SECOND)  # on another executor
    stream.lose_worker()
    discard(here)
    kept.rename(here)
    stream.batch(FIRST)
    assert (stream.count(FIRST), stream.count(SECOND)) == ((3, 2), (2, 2))


@pytest.mark.parametrize("stream", [TOLD], indirect=True)
def test_a_stream_that_comes_back_to_a_machine_is_not_read_from_the_stores_that_it_had_left(stream: Counting) -> None:
    """Its state is in an object store, and another machine has gone on with it."""
    stream.batch(FIRST, SECOND)
    here, kept = stream.paths.current.local, stream.paths.current.local.with_name("kept")
    stream.lose_worker()
    here.rename(kept)
    stream.restart()
    stream.batch(FIRST, SECOND)
    stream.lose_worker()
    discard(here)
    kept.rename(here)
    stream.restart()
    stream.batch(FIRST)
    assert stream.count(FIRST) == (3, 2)
    with pytest.raises(StoreUnavailableError):
        stream.count(SECOND)
    stream.batch(SECOND)
    assert stream.count(SECOND) == (3, 3)


def test_a_server_that_was_killed_is_back_with_the_next_batch(stream: Counting) -> None:
    stream.batch(FIRST)
    store_process._children[stream.paths.current.local].kill()
    with pytest.raises(StoreUnavailableError, match="does not answer"):
        stream.count(FIRST)
    stream.batch(SECOND)
    assert stream.count(FIRST) == (1, 1)


def test_all_workers_of_an_executor_have_one_server(stream: Counting) -> None:
    stream.batch(FIRST)
    before = set(stream.places.values())
    stream.lose_worker()
    stream.batch(FIRST, SECOND)
    assert set(stream.places.values()) == before and len(before) == 1


def test_who_has_another_token_gets_nothing(stream: Counting) -> None:
    stream.batch(FIRST)
    (place,) = set(stream.places.values())
    request = store_requests.Request(
        store_requests.FORMAT, 0, 0, "counts", store_requests.OfBatch(0, ()), store_requests.Get([FIRST.encode()])
    )
    with closing(remote.Servers("another")) as servers, pytest.raises(StoreUnavailableError, match="another driver"):
        servers.ask(place.url, request, list[bytes | None])
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{place.url}/read", data=b"?")


def test_another_server_on_the_same_port_is_not_asked(stream: Counting) -> None:
    stream.batch(FIRST)
    told = served.read(stream.paths.served)
    assert told is not None
    moved = {task: url[:-1] + ("0" if url[-1] != "0" else "1") for task, url in told.servers.items()}
    stream.paths.served.write_bytes(msgspec.json.encode(msgspec.structs.replace(told, servers=moved)))
    with pytest.raises(StoreUnavailableError, match="Not Found"):
        stream.count(FIRST)


def test_a_request_of_another_version_is_refused(stream: Counting) -> None:
    stream.batch(FIRST)
    told = served.read(stream.paths.served)
    assert told is not None
    get = store_requests.Get([FIRST.encode()])
    request = store_requests.Request(0, 0, 0, "counts", store_requests.OfBatch(0, ()), get)
    says = "format 0; this server reads format 1"
    with closing(remote.Servers(told.token)) as servers, pytest.raises(StoreUnavailableError, match=says):
        servers.ask(next(iter(told.servers.values())), request, list[bytes | None])


def test_what_is_missing_on_executors_is_said(stream: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "starlette" else found(name))
    stream.batch(FIRST)
    with pytest.raises(StoreUnavailableError, match=r"no starlette: install deltaworks\[queries\] there"):
        stream.count(FIRST)


def test_what_the_driver_told_is_for_its_user_and_whole(stream: Counting) -> None:
    stream.batch(FIRST)
    file = stream.paths.served
    assert file.stat().st_mode & 0o777 == 0o600
    told = file.read_bytes()
    file.write_bytes(told[:-20])
    with pytest.raises(StoreUnavailableError, match="cannot be read"):
        stream.count(FIRST)
    file.write_bytes(msgspec.json.encode(json.loads(told) | {"format": 99}))
    with pytest.raises(Exception, match="has format 99"):
        stream.count(FIRST)
    stream.batch(FIRST)
    assert stream.count(FIRST) == (2, 1)


def test_a_new_driver_says_nothing_before_it_has_committed_a_batch(stream: Counting) -> None:
    """The servers of the driver before have ended with it."""
    stream.batch(FIRST)
    serving = StoreServing.of("127.0.0.1")
    served.Announcer(
        stream.paths.served, stream.checkpoint, stream.paths.current.local, stream.routes, token=serving.token
    )
    with pytest.raises(StoreUnavailableError, match="no batch"):
        stream.count(FIRST)


def test_only_the_batch_that_has_ended_is_told(stream: Counting) -> None:
    stream.batch(FIRST)
    stream.batch(FIRST, is_committed=False)
    intent = stream.intents.get(1)
    assert intent is not None
    stream.announcer.ended(intent, stream.places)
    stream.announcer.committed(0)
    assert stream.count(FIRST) == (1, 0)
    stream.announcer.committed(1)
    assert stream.count(FIRST) == (2, 1)
