"""What the page is told: of an empty home, of one stream, of forty, of one that fails; and who is told what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from deltaworks.cli import listings
from deltaworks.control import batches
from deltaworks.control.seen import seen
from deltaworks.settings import Settings
from deltaworks.ui import access
from deltaworks.ui.access import Access
from deltaworks.ui.app import OF_STREAM, Place, application, by_token
from deltaworks.ui.history import Watch
from deltaworks.ui.reading import Reader
from tests.support.homes import Stream, settings_of

QUOTES = "ValueError: the key 'customer-4711' is no number\n  at jobs/counts.py:9"
ANYONE = Access({}, open_to_viewers=True)
JOB = '''"""Counts."""

from deltaworks import DeadLetters, Pipeline, StreamsBuilder


def topology(builder: StreamsBuilder) -> None:
    words = builder.stream("lines", key=str, value=str).filter(lambda key, value: bool(value))
    words.group_by_key().count(store="counts").to_delta("counts")


print("imported")
pipeline = Pipeline(name="counts", topology=topology, dead_letters=DeadLetters(table="counts_dead"))
'''


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "project" / "jobs").mkdir(parents=True)
    return settings_of(tmp_path / "home", tmp_path / "project")


@contextmanager
def asked(settings: Settings, allowed: Access | None = None, place: Place | None = None) -> Iterator[TestClient]:
    watch = Watch(settings, every_s=3_600)
    allowed = allowed or ANYONE
    app = application(Reader(settings, watch), watch, by_token(allowed), place or Place(hosts=("testserver",)))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def operator() -> tuple[Access, dict[str, str]]:
    allowed, token = Access.for_this_machine()
    return allowed, {"Authorization": f"Bearer {token}"}


def answer(client: TestClient, path: str, headers: dict[str, str] | None = None) -> Any:
    response = client.get(f"/api/{path}", headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def test_an_empty_home_has_no_streams_and_says_why_it_may_not_know(settings: Settings) -> None:
    with asked(settings) as client:
        found = answer(client, "streams")
        assert found["streams"] == [] and "PostgreSQL" in found["registry_problem"]
        assert answer(client, "connectors") == {"connectors": [], "problem": None}


def test_the_numbers_are_those_of_status(settings: Settings) -> None:
    Stream(settings, "counts", topics=("lines",)).beats()
    Stream(settings, "other").fails(QUOTES)
    allowed, headers = operator()

    with asked(settings, allowed) as client:
        found = {each["name"]: each for each in answer(client, "streams", headers)["streams"]}
        one = answer(client, "streams/counts", headers)["stream"]
    status = listings.Status.of(seen(settings), [])
    assert len(status.pipelines) == 2
    for pipeline in status.pipelines:
        shown = found[pipeline.name]
        both = set(pipeline.__struct_fields__) & set(shown) - {"for_seconds"}
        assert {name: shown[name] for name in both} == {name: getattr(pipeline, name) for name in both}
        assert len(both) >= 10
    assert one["records_per_second"] == found["counts"]["records_per_second"] == 120.0


def test_forty_streams_come_at_once(settings: Settings) -> None:
    for number in range(40):
        Stream(settings, f"stream-{number:02}").beats()

    with asked(settings) as client:
        found = answer(client, "streams")["streams"]
    assert len(found) == 40 and {each["state"] for each in found} == {"running"}


def test_why_a_stream_fails_is_for_operators(settings: Settings) -> None:
    Stream(settings, "counts").fails(QUOTES)
    allowed, headers = operator()

    with asked(settings, allowed) as client:
        viewed = "".join(client.get(f"/api/{path}").text for path in ("streams", "streams/counts"))
        operated = answer(client, "streams/counts", headers)
        assert answer(client, "streams")["streams"][0]["state"] == "failed"
    assert "4711" not in viewed and "jobs/counts.py" not in viewed
    assert operated["stream"]["reason"] == QUOTES and operated["stream"]["state"] == "failed"


def test_the_last_hours_are_those_that_are_recorded(settings: Settings) -> None:
    stream = Stream(settings, "counts")
    past = stream.past(1.0, 60.0)
    stream.beats()

    watch = Watch(settings, every_s=3_600)
    for beat in past:
        watch.take("counts", beat)
    with TestClient(application(Reader(settings, watch), watch, by_token(ANYONE), Place())) as client:
        shown = answer(client, "streams/counts")["history"]
    assert len(shown["lag_seconds"]["values"]) == 61 and max(shown["batch_seconds"]["values"]) > 0.9
    throughput = shown["records_per_second"]["values"]
    assert 58 <= len(throughput) <= 60 and all(100 < value < 600 for value in throughput[1:-1])


def test_what_is_recorded_is_read_once_for_any_number_of_people(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def since(folder: Path, wall_clock_ms: int) -> list[batches.BatchRecord]:
        reads.append(folder.parent.name)
        return []

    monkeypatch.setattr(batches, "since", since)
    for name in ("counts", "other"):
        Stream(settings, name).beats()

    with asked(settings) as client:
        for name in (*(["counts"] * 5), "other"):
            assert answer(client, f"streams/{name}")["stream"]["name"] == name
    assert reads == ["counts", "other"]


def test_a_topology_has_boxes_lines_stores_and_rates(settings: Settings) -> None:
    (settings.jobs / "counts.py").write_text(JOB)
    stream = Stream(settings, "counts", topics=("lines",))
    watch = Watch(settings, every_s=3_600)
    watch.take("counts", stream.beat_at(time.time() - 30))
    stream.beats()

    with TestClient(application(Reader(settings, watch), watch, by_token(ANYONE), Place())) as client:
        answer(client, "streams/counts/topology")  # the code is loaded, which takes its time
        watch.take("counts", stream.beats())
        time.sleep(1.1)  # until the overview is read again
        found = answer(client, "streams/counts/topology")
        letters = answer(client, "streams/counts/dead-letters")
        assert answer(client, "streams/counts/tables") == [] == answer(client, "streams/counts/replays")
    kinds = {box["id"]: box["kind"] for box in found["graph"]["boxes"]}
    assert kinds["topic lines"] == "topic" and kinds["table counts"] == "table"
    lines = {(line["source"], line["target"]): line for line in found["graph"]["lines"]}
    (first,) = [line for line in lines.values() if line["source"] == "topic lines"]
    assert first["topic"] == "lines" and len(first["points"]) >= 2
    assert found["rates"]["lines"] == pytest.approx(120, rel=0.1), found["rates"]
    assert [store["name"] for store in found["stores"]] == ["counts"]
    assert letters == {"table": "counts_dead", "letters": []}


def test_a_stream_that_has_ended_has_no_rates(settings: Settings) -> None:
    (settings.jobs / "counts.py").write_text(JOB)
    stream = Stream(settings, "counts", topics=("lines",))
    watch = Watch(settings, every_s=3_600)
    for ago in (30, 1):
        watch.take("counts", stream.beat_at(time.time() - ago))
    stream.fails(QUOTES)

    with TestClient(application(Reader(settings, watch), watch, by_token(ANYONE), Place())) as client:
        assert answer(client, "streams/counts/topology")["rates"] == {}


def test_code_that_fails_or_is_gone_is_said_where_it_is_needed(settings: Settings) -> None:
    (settings.jobs / "counts.py").write_text(JOB.replace('builder.stream("lines"', 'builder.steam("lines"'))
    streams = (Stream(settings, "counts"), "jobs/counts.py"), (Stream(settings, "gone"), "There is no file")
    allowed, headers = operator()

    with asked(settings, allowed) as client:
        for stream, text in streams:
            name = stream.name
            response = client.get(f"/api/streams/{name}/topology", headers=headers)
            assert response.status_code == 409 and text in response.json()["error"], response.text
            for path in ("topology", "dead-letters"):
                viewed = client.get(f"/api/streams/{name}/{path}").json()
                assert viewed == {"error": f"The code of {name} cannot be described.", "hint": "operators see why"}
            stream.beats()
            assert answer(client, f"streams/{name}")["stream"]["state"] == "running"
            assert answer(client, f"streams/{name}/tables") == []


@pytest.mark.parametrize("path", list(OF_STREAM))
def test_a_stream_that_nobody_knows_is_not_found(settings: Settings, path: str) -> None:
    Stream(settings, "counts").beats()

    with asked(settings) as client:
        for name in ("count", "..", "%2e%2e%2fcounts", "a" * 200):
            response = client.get(f"/api/streams/{name}{path}")
            assert response.status_code == 404, response.text


def test_with_a_file_everybody_needs_a_token_and_sees_only_what_it_says(settings: Settings, tmp_path: Path) -> None:
    Stream(settings, "counts").beats()
    Stream(settings, "secret").beats()
    file = tmp_path / "clients.toml"
    token = access.add_client(file, "wall", "viewer", ("count*",))
    headers = {"Authorization": f"Bearer {token}"}

    with asked(settings, access.read(file)) as client:
        for path in ("me", "streams", "connectors", *(f"streams/counts{path}" for path in OF_STREAM)):
            for wrong in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": token}):
                assert client.get(f"/api/{path}", headers=wrong).status_code == 401
        assert [each["name"] for each in answer(client, "streams", headers)["streams"]] == ["counts"]
        assert answer(client, "me", headers)["role"] == "viewer"
        for path in OF_STREAM:
            for name in ("secret", "nowhere"):
                assert client.get(f"/api/streams/{name}{path}", headers=headers).status_code == 403
            none = client.get(f"/api/streams/counterpart{path}", headers=headers)
            assert none.status_code == 404 and "secret" not in none.text


def test_a_wrong_token_is_nobody_even_where_anybody_may_look(settings: Settings) -> None:
    with asked(settings) as client:
        assert client.get("/api/me").json()["role"] == "viewer"
        assert client.get("/api/me", headers={"Authorization": "Bearer x"}).status_code == 401


def test_nobody_learns_how_to_become_somebody(settings: Settings) -> None:
    with asked(settings) as client:
        told = client.get("/api/me", headers={"Authorization": "Bearer x"}).json()
    assert told.keys() == {"error", "hint"} and "does not know this token" in told["error"]
    assert "`deltaworks ui`" in told["hint"]
    with asked(settings, Access({}, open_to_viewers=False), Place(airflow="/base")) as client:
        told = client.get("/api/me").json()
    assert told["airflow"] == "/base" and "ask whoever runs the page" in told["hint"]
    with asked(settings, Access({}, open_to_viewers=False), Place(airflow="http://flow.example/base")) as client:
        assert client.get("/api/me").json().keys() == {"error", "hint"}, "it has sessions of its own"


def test_nothing_can_be_changed(settings: Settings) -> None:
    Stream(settings, "counts").beats()

    with asked(settings) as client:
        for path in ("/api/streams", "/api/streams/counts", "/"):
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                assert client.request(method, path).status_code == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("testserver", 200), ("localhost:19300", 200), ("[::1]:19300", 200), ("evil.example", 400), ("", 400),
        ("evil.example:19300", 400), ("[::2]", 400), ("localhost.evil.example", 400),
    ],
)  # fmt: skip
def test_another_name_in_the_request_is_refused(settings: Settings, host: str, status: int) -> None:
    """So that a page elsewhere, whose name leads here, cannot have a browser read it."""
    with asked(settings, place=Place(hosts=("testserver", "localhost", "[::1]"))) as client:
        assert client.get("/api/me", headers={"Host": host}).status_code == status


def test_the_front_end_is_there_and_loads_nothing_from_elsewhere(settings: Settings) -> None:
    with asked(settings, place=Place(airflow="https://flow.example/base", hosts=("testserver",))) as client:
        page = client.get("/")
        assert page.status_code == 200 and "text/html" in page.headers["content-type"]
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "frame-ancestors 'self' https://flow.example" in policy
        assert "://" not in page.text
        paths = [each.split('"')[0] for each in page.text.split('="./')[1:]]
        assert len(paths) == 3
        for path in paths:
            asset = client.get(f"/{path}")
            assert asset.status_code == 200
            assert ("immutable" in asset.headers["cache-control"]) is path.startswith("assets/index-"), path
        for path in ("/assets/..%2f..%2fapp.py", "/assets/none.js", "/src/main.tsx"):
            assert client.get(path).status_code == 404
