"""A person's entries leave the state of a stopped stream, whatever interrupts it, and the stream goes on.

Spark's checkpoint is what it would have left; `tests/spark/test_erasing.py` reads a real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import faults
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.intents import Intents
from deltaworks.erase import state
from deltaworks.erase.state import StateErased
from deltaworks.errors import ConflictError, IncompatibleCheckpointError
from deltaworks.files import LocalFiles
from deltaworks.lakehouse.reading import dataset
from deltaworks.settings import Settings
from deltaworks.spark import handover
from deltaworks.spark.checkpoint_files import LoggedOffsets
from deltaworks.testing.topics import RawRecord
from deltaworks.topology.persons import Person
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.stopping import Stopping
from tests.spark.pipelines import counting, visiting
from tests.support.fault_hooks import InjectedFault

THEIRS, OTHER = "vanished-7f3a", "stayed-91bc"
PERSON = Person.of(THEIRS)
ENTRIES = {"visitors": 1, "visit-counts": 1, "pages": 1}
Contents = dict[str, bytes]


class Visiting(Stopping):
    """The pipeline `visiting`, stopped after its first batches."""

    @classmethod
    def begun(cls, home: Path, settings: Settings | None = None) -> Visiting:
        """In a home, whose settings may say that tables or more are in an object store."""
        settings = settings or replace(Settings.from_environment({}), home=home)
        kafka = MemoryKafka({"visitors": 2, "visits": 2, "named-visits": 2})
        made = cls(InProcessStream(visiting, settings, kafka=kafka))
        for key in (THEIRS, OTHER):
            kafka.write("visitors", RawRecord(key.encode(), f"user {key}".encode(), 1_000_000))
        made.visit({THEIRS: "home", OTHER: "home"})
        made.visit({THEIRS: "home", OTHER: f"of {THEIRS}"})
        return made

    @property
    def home(self) -> Path:
        return self.stream.settings.home

    def visit(self, visits: dict[str, str]) -> None:
        """A batch with one visit per key, then the stream stops."""
        stream = self.stream
        assert stream.kafka is not None
        for key, page in visits.items():
            stream.kafka.write("visits", RawRecord(key.encode(), page.encode(), 1_000_000))
        stream.run(stream.end())
        self.stop()
        (stream.paths.current.spark / "state" / "held").write_text(f"{THEIRS} {OTHER}")

    def erase(self, key: str = THEIRS, erasure_id: str = "one") -> StateErased:
        stream = self.stream
        return state.erase(stream.settings, visiting, stream.paths, Person.of(key), erasure_id, read=self.read)

    def contents(self) -> Contents:
        root = self.stream.paths.root
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def files_with(self, key: str) -> list[str]:
        return sorted(name for name, content in self.contents().items() if key.encode() in content or key in name)

    def counts(self) -> dict[str, int]:
        rows = dataset(self.stream.settings.tables / "visit_counts").to_table().to_pylist()
        return {row["key"]: row["value"] for row in rows}


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Visiting]:
    made = Visiting.begun(tmp_path)
    yield made
    made.stream.close()


@contextmanager
def failing_at(point: str, times: int) -> Iterator[None]:
    """At the given time that the point is reached."""
    reached = 0

    def hook(name: str) -> None:
        nonlocal reached
        reached += name == point
        if name == point and reached == times:
            raise InjectedFault(point)

    faults.arm(hook)
    try:
        with pytest.raises(InjectedFault):
            yield
    finally:
        faults.arm(None)


def test_the_person_begins_anew_and_the_others_go_on(stopped: Visiting) -> None:
    before, last = stored_plan(stopped.stream.paths.current.plan), stopped.stream.batch_id - 1
    assert before is not None
    others = len(stopped.files_with(OTHER))

    assert stopped.erase().entries == ENTRIES

    assert stopped.files_with(THEIRS) == [] and others > len(stopped.files_with(OTHER)) > 0
    after = stored_plan(stopped.stream.paths.current.plan)
    assert after is not None
    assert (after.query_id, after.lineage, after.first_batch) == (before.query_id, before.lineage, last + 1)
    stopped.go_on()
    stopped.visit({THEIRS: "again", OTHER: "again"})
    assert stopped.counts() == {THEIRS: 1, OTHER: 3}
    assert stopped.stream.kafka is not None
    named = {each.value for _, _, each in stopped.stream.kafka.read("named-visits")}
    assert {b"again None", f"again user {OTHER}".encode()} <= named


@pytest.mark.parametrize(
    ("point", "times"),
    [
        ("store.before_rebuild", 2), ("erase.made", 1), ("erase.switched", 1), ("erase.deleted", 1),
        ("erase.deleted", 3),
    ],
)  # fmt: skip
def test_called_again_it_completes_what_was_interrupted(stopped: Visiting, point: str, times: int) -> None:
    before = stopped.contents()
    with failing_at(point, times):
        stopped.erase()

    if point in ("store.before_rebuild", "erase.made"):
        assert stopped.stream.paths.switched == ()
        now = stopped.contents()
        assert {name: now.get(name) for name in before if name != "synced.json"} == {
            name: content for name, content in before.items() if name != "synced.json"
        }
    assert stopped.erase().entries == ENTRIES
    assert stopped.files_with(THEIRS) == []
    assert stopped.erase().entries == ENTRIES
    stopped.go_on()
    stopped.visit({THEIRS: "again", OTHER: "again"})
    assert stopped.counts() == {THEIRS: 1, OTHER: 3}


def test_counting_changes_nothing(stopped: Visiting) -> None:
    before, stream = stopped.contents(), stopped.stream

    found = state.count(stream.settings, visiting, stream.paths, PERSON, read=stopped.read)

    assert found.entries == ENTRIES
    assert stopped.contents() == before


def test_initial_state_is_erased_too_as_nothing_else_holds_it(stopped: Visiting) -> None:
    stopped.erase(OTHER, "first")
    assert stopped.files_with(OTHER) == [] != stopped.files_with(THEIRS)

    assert stopped.erase(THEIRS, "second").entries == ENTRIES

    assert stopped.files_with(THEIRS) == []
    assert stopped.stream.paths.switched == ("erased-first", "erased-second")
    handover.expire(stopped.stream.paths, 1e12)
    stopped.go_on()
    stopped.visit({THEIRS: "again", OTHER: "again"})
    assert stopped.counts() == {THEIRS: 1, OTHER: 1}


def test_checkpoints_that_do_not_run_are_deleted(stopped: Visiting) -> None:
    paths = stopped.stream.paths
    for name in ("undone-run", ".half-made", "made-and-not-switched"):
        (paths.checkpoints / name).mkdir(parents=True)
        (paths.checkpoints / name / "stores").write_text(THEIRS)
    (paths.checkpoints / "undone-run" / "undone").touch()

    stopped.erase()

    assert [path.name for path in paths.checkpoints.iterdir()] == ["erased-one"]


def test_an_erasure_cannot_be_undone(stopped: Visiting) -> None:
    stopped.erase()
    for name in (None, "erased-one"):
        with pytest.raises(ConflictError, match=r"Data was erased .*erased-one.* nothing to go back to"):
            handover.undo(stopped.stream.paths, name)


@pytest.mark.parametrize("begun", ["planned", "intended"])
def test_a_batch_that_is_not_finished_is_finished_first(stopped: Visiting, begun: str) -> None:
    stream = stopped.stream
    assert stream.kafka is not None
    intents = Intents(LocalFiles(stream.paths.current.intents))
    last = intents.last()
    assert last is not None
    stream.kafka.write("visits", RawRecord(b"k", b"v", 1_000_000))
    intent = intents.put(stream._intent(stream.end(), 1_800_000_100_000))
    if begun == "planned":
        logged = LoggedOffsets({"batchTimestampMs": 0}, intent.end)
        (stream.paths.current.spark / "offsets" / str(intent.batch)).write_bytes(logged.encode())
    before = stopped.contents()

    with pytest.raises(ConflictError, match=f"begun batch {last.batch + 1} and not finished it") as refused:
        stopped.erase()

    assert "start the stream once more" in str(refused.value.hint)
    now = stopped.contents()
    assert {name: now.get(name) for name in before if name != "synced.json"} == {
        name: content for name, content in before.items() if name != "synced.json"
    }


def test_stores_are_read_with_the_code_that_has_written_them(stopped: Visiting) -> None:
    before, stream = stopped.contents(), stopped.stream
    other = replace(visiting, topology=counting.topology)

    with pytest.raises(IncompatibleCheckpointError, match="was made for another topology"):
        state.erase(stream.settings, other, stream.paths, PERSON, "one", read=stopped.read)

    assert stopped.contents() == before
