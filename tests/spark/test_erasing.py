"""On real Spark: a key is erased from the state of a stream, also of a killed one; no file has it, and it goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from deltaworks import exits
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.paths import PipelinePaths
from deltaworks.kafka import admin
from deltaworks.settings import Settings
from tests.spark.pipelines import visiting
from tests.spark.test_streaming import beat_of, environment, run, send, until
from tests.support.live_stack import LiveStack
from tests.support.recorded_batches import StoreDifference, compare_stores

pytestmark = pytest.mark.timeout(1800)
FIRST, SECOND = "vanished-7f3a", "departed-91bc"
"""The persons that are erased; keys that no other bytes look like."""
OTHERS = [f"k{i}" for i in range(5)]


def call(kafka: LiveStack, settings: Settings, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env=environment(kafka, settings) | {"DELTAWORKS_MAX_RECORDS_PER_BATCH": "40"},
        capture_output=True, text=True, check=False, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == exits.OK, done.stderr[-3000:]
    return done.stdout


def erase(kafka: LiveStack, settings: Settings, key: str, erasure_id: str) -> dict[str, int]:
    said = call(kafka, settings, "tests.spark.erase", "visiting", key, erasure_id)
    entries: dict[str, int] = json.loads(said.splitlines()[-1])
    return entries


def caught_up(kafka: LiveStack, settings: Settings) -> None:
    call(kafka, settings, "tests.spark.pipelines", "visiting", "--until-caught-up")


def visit(kafka: LiveStack, key: str, page: str, count: int) -> None:
    """All in one window."""
    send(kafka.bootstrap, "visits", [(key, page, 1_000_000 + i) for i in range(count)])


def files_with(folder: Path, key: str) -> list[str]:
    """The files that have a key in their bytes or names, in archives too.

    What Spark compresses (LZ4) has the first occurrence in each block as it is.
    """
    found: list[str] = []
    for path in folder.rglob("*"):
        if path.is_file():
            contents = [path.read_bytes(), str(path).encode()]
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    contents += [archive.read(name) for name in archive.namelist()]
            if any(key.encode() in content for content in contents):
                found.append(str(path.relative_to(folder)))
    return sorted(found)


def is_of_a_person(difference: StoreDifference) -> bool:
    data = difference.key + (difference.found or b"") + (difference.expected or b"")
    return any(erased.encode() in data for erased in (FIRST, SECOND))


def counts(settings: Settings) -> dict[str, int]:
    rows = DeltaTable(settings.tables / "visit_counts").to_pyarrow_table().to_pylist()
    return {row["key"]: row["value"] for row in rows}


@pytest.mark.slow
def test_a_key_leaves_the_state_of_a_stopped_and_of_a_killed_stream(kafka: LiveStack, tmp_path: Path) -> None:
    settings = replace(kafka.settings, home=tmp_path)
    paths = PipelinePaths.of(settings, "visiting")
    admin.create_topics(kafka.bootstrap, admin.topic_specs(visiting.topics))
    send(kafka.bootstrap, "visitors", [(key, f"user {key}", 1_000_000) for key in (FIRST, SECOND, *OTHERS)])
    for number, key in enumerate((FIRST, SECOND, *OTHERS)):
        visit(kafka, key, "home", 10 + number)
    visit(kafka, "k0", f"page-of {FIRST}", 1)
    caught_up(kafka, settings)
    before = stored_plan(paths.current.plan)
    assert before is not None
    assert any(name.startswith("checkpoint/state") for name in files_with(paths.root, FIRST))

    entries = erase(kafka, settings, FIRST, "one")

    assert entries == {"visitors": 1, "visit-counts": 1, "pages": 1}
    assert files_with(paths.root, FIRST) == []
    assert files_with(paths.root, SECOND) != []
    after = stored_plan(paths.current.plan)
    assert after is not None
    assert (after.query_id, after.lineage) == (before.query_id, before.lineage)
    assert erase(kafka, settings, FIRST, "one") == entries

    visit(kafka, FIRST, "again", 3)
    visit(kafka, "k1", "again", 3)
    with run(kafka, settings, "visiting") as process:

        def is_done() -> bool:
            beat = beat_of(settings, "visiting")
            assert process.poll() is None, (settings.home / "visiting.log").read_text()[-3000:]
            return beat is not None and beat.pid == process.pid and beat.records_total == 6

        until(is_done, "all records are processed")
        process.kill()
        process.wait()
    assert counts(settings) == {FIRST: 3, SECOND: 11, "k0": 13, "k1": 16, "k2": 14, "k3": 15, "k4": 16}
    named = {(message.value() or b"").decode() for message in kafka.read("named-visits")}
    assert {"again None", "again user k1"} <= named

    assert erase(kafka, settings, SECOND, "two") == {"visitors": 1, "visit-counts": 1}
    assert files_with(paths.root, SECOND) == []
    visit(kafka, SECOND, "again", 2)
    visit(kafka, FIRST, "again", 2)
    caught_up(kafka, settings)
    assert counts(settings) == {FIRST: 5, SECOND: 2, "k0": 13, "k1": 16, "k2": 14, "k3": 15, "k4": 16}
    assert compare_stores(settings, visiting, but=is_of_a_person) == []
