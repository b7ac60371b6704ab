"""What a replay has computed replaces what the stream had written, exactly, and can be taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.lakehouse import release
from tests.unit.lakehouse.release_lake import Stream, check, contents, publish, request_for


@pytest.fixture
def live(tmp_path: Path) -> Stream:
    stream = Stream(tmp_path / "tables")
    stream.run(12)
    return stream


@pytest.fixture
def staging(tmp_path: Path, live: Stream) -> Stream:
    return live.replay(tmp_path / "staging", "run-1", 1)


def test_the_tables_are_right_before_anything_is_published(live: Stream) -> None:
    check(live)


def test_a_publish_replaces_the_days_and_the_stream_goes_on(tmp_path: Path, live: Stream, staging: Stream) -> None:
    live.run(2)

    done = publish(live, staging, request_for(staging, days=(0, 3)), tmp_path / "releases")

    assert done.state == "published"
    check(live)
    live.run(5)
    check(live)


def test_a_rollback_brings_back_every_row(tmp_path: Path, live: Stream, staging: Stream) -> None:
    live.committer.refresh_snapshots(force=True)
    before = contents(live.root)
    old = live.rows
    release.publish(live.committer, staging.root, request_for(staging, days=(0, 3)), tmp_path / "releases")
    assert contents(live.root) != before

    done = release.rollback(live.committer, tmp_path / "releases", "run-1")

    assert done.state == "rolled back"
    assert contents(live.root) == before
    live.rows = old
    live.run(3)
    check(live)
