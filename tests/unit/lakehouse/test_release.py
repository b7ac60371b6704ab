"""What a replay has computed replaces what the stream had written, exactly, and can be taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaworks import faults
from deltaworks.lakehouse import release
from tests.unit.lakehouse.release_lake import TABLES, Stream, check, contents, publish, request_for

DAYS = (0, 3)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stream, Stream]:
    """A stream of 13 batches and a replay of them; nobody changes these."""
    live = Stream(tmp_path_factory.mktemp("live") / "tables")
    live.run(13)
    return live, live.replay(tmp_path_factory.mktemp("staging") / "tables", "run-1", 1)


@pytest.fixture
def live(tmp_path: Path, base: tuple[Stream, Stream]) -> Stream:
    return base[0].copy(tmp_path / "tables")


@pytest.fixture
def staging(base: tuple[Stream, Stream]) -> Stream:
    return base[1]


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    return tmp_path / "releases"


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    faults.arm(None)


class Crash(Exception):
    """Stands for the end of the process."""


def crash_at(point: str) -> None:
    """The next time that it gets there, and once only."""

    def hook(reached: str) -> None:
        if reached == point:
            faults.arm(None)
            raise Crash(point)

    faults.arm(hook)


def files_of(stream: Stream) -> dict[str, set[str]]:
    """The files of every table."""
    return {name: set(table.log.files) for name, table in stream.committer.tables.items()}


def assert_no_stray_files(stream: Stream) -> None:
    """A driver that starts leaves no file that no table knows."""
    stream.restart()
    for name, table in stream.committer.tables.items():
        known = set(table.log.files) | {path for _, path in table.log.tombstones}
        found = {file.relative_to(table.log.path).as_posix() for file in table.log.path.rglob("*.parquet")}
        assert {path for path in found if not path.startswith("_")} == known, name


def test_the_tables_are_right_before_anything_is_published(tmp_path: Path, live: Stream, staging: Stream) -> None:
    check(live)
    check(staging.copy(tmp_path / "copy"))


def test_a_publish_replaces_the_days_and_the_stream_goes_on(releases: Path, live: Stream, staging: Stream) -> None:
    live.run(2)

    done = publish(live, staging, request_for(staging, days=DAYS), releases)

    assert done.state == "published"
    assert all(told.version_after == told.version_before + 1 for told in done.tables.values())
    check(live)
    live.run(5)
    check(live)
    live.restart()
    check(live)


def test_a_rollback_brings_back_every_row(releases: Path, live: Stream, staging: Stream) -> None:
    live.committer.refresh_snapshots(force=True)
    before, old, files = contents(live.root), live.rows, files_of(live)
    release.publish(live.committer, staging.root, request_for(staging, days=DAYS), releases)
    assert contents(live.root) != before

    done = release.rollback(live.committer, releases, "run-1")

    assert done.state == "rolled back"
    assert contents(live.root) == before
    assert {name: paths for name, paths in files_of(live).items() if name != "users"} == {
        name: paths for name, paths in files.items() if name != "users"
    }
    live.rows = old
    live.run(3)
    check(live)


def test_tables_that_were_not_asked_for_stay_as_they_are(releases: Path, live: Stream, staging: Stream) -> None:
    before = files_of(live)

    done = publish(live, staging, request_for(staging, days=DAYS, tables=("orders",)), releases)

    after = files_of(live)
    assert set(done.tables) == {"orders"}
    assert {name for name in before if before[name] != after[name]} == {"orders"}
    check(live)


def test_a_changelog_brings_its_snapshot_along(releases: Path, live: Stream, staging: Stream) -> None:
    done = publish(live, staging, request_for(staging, tables=("users",)), releases)

    assert list(done.tables) == ["users", "users_changelog"]
    check(live)


PUBLISH_POINTS = [
    "release.before_record",
    "release.after_record",
    "release.between_tables",
    "release.after_commits",
    *(f"release.{side}_commit:{name}" for side in ("before", "after") for name in TABLES),
]
ROLLBACK_POINTS = [point.replace("release", "rollback") for point in PUBLISH_POINTS]


@pytest.mark.parametrize("goes_on", [False, True], ids=["at once", "after more batches"])
@pytest.mark.parametrize("point", PUBLISH_POINTS)
def test_a_publish_that_crashed_is_completed_by_the_same_call(
    releases: Path, live: Stream, staging: Stream, point: str, goes_on: bool
) -> None:
    request = request_for(staging, days=DAYS)
    crash_at(point)
    with pytest.raises(Crash):
        release.publish(live.committer, staging.root, request, releases)
    live.restart()
    if goes_on:
        live.run(2)

    publish(live, staging, request, releases)

    live.run(1)
    check(live)
    again = release.publish(live.committer, staging.root, request, releases)
    assert again.state == "published"
    assert again.round == 1
    check(live)
    assert_no_stray_files(live)
    rolled_back = release.rollback(live.committer, releases, "run-1")
    assert all(told.rolled_back_version is not None for told in rolled_back.tables.values())
    live.rows = live.written
    check(live)


@pytest.mark.parametrize("goes_on", [False, True], ids=["at once", "after more batches"])
@pytest.mark.parametrize("point", ROLLBACK_POINTS)
def test_a_rollback_that_crashed_is_completed_by_the_same_call(
    releases: Path, live: Stream, staging: Stream, point: str, goes_on: bool
) -> None:
    release.publish(live.committer, staging.root, request_for(staging, days=DAYS), releases)
    live.run(1)
    crash_at(point)
    with pytest.raises(Crash):
        release.rollback(live.committer, releases, "run-1")
    live.restart()
    if goes_on:
        live.run(2)

    done = release.rollback(live.committer, releases, "run-1")

    assert done.state == "rolled back"
    live.run(1)
    check(live)
    assert release.rollback(live.committer, releases, "run-1") == done
    check(live)
    assert_no_stray_files(live)


def test_a_publish_that_crashed_can_be_taken_back_instead(releases: Path, live: Stream, staging: Stream) -> None:
    crash_at("release.after_commit:users")
    with pytest.raises(Crash):
        release.publish(live.committer, staging.root, request_for(staging, days=DAYS), releases)
    live.restart()
    live.run(2)

    done = release.rollback(live.committer, releases, "run-1")

    assert [name for name, told in done.tables.items() if told.rolled_back_version is not None] == ["users"]
    check(live)


def test_the_names_of_all_points_are_those_that_are_reached(releases: Path, live: Stream, staging: Stream) -> None:
    reached: list[str] = []
    faults.arm(reached.append)

    release.publish(live.committer, staging.root, request_for(staging, days=DAYS), releases)
    release.rollback(live.committer, releases, "run-1")

    assert {point for point in reached if point.startswith(("release.", "rollback."))} == {
        *PUBLISH_POINTS,
        *ROLLBACK_POINTS,
    }
