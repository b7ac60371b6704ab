"""What the driver tells tasks of a table is the same on its machine and, by copies, on others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks.errors import TableError
from deltaworks.files import replace_file
from deltaworks.lakehouse import page_index
from deltaworks.lakehouse.page_index import (
    PageChange,
    PageList,
    PageListReader,
    PageListWriter,
    driver_of,
    files_for,
    keep,
    open_for,
    publish_held,
    read_held,
)

Held = dict[tuple[str, int], list[tuple[int, int]]]
TASK, OTHER = 3, 4


class Machines:
    """A table, as the driver's machine has it and as another one has it; what was sent between them."""

    def __init__(self, root: Path) -> None:
        self.here, self.there = root / "here/t", root / "there/t"
        self.reader = PageListReader(TASK)
        """Of a task that never moves."""
        self.copy_reader = PageListReader(TASK)
        self.sent: list[dict[str, bytes]] = []
        self.batch = 0
        self.pages: list[str] = []
        self.open()

    def open(self) -> None:
        """A driver starts, and reads from the log what its tasks have."""
        self.driver = open_for(self.here, "q")
        found = [PageList(self.batch, 10 * self.batch, [*self.pages]) for _ in (TASK, OTHER)]
        self.writer = PageListWriter(self.driver.control, TASK, found[0])
        self.other = PageListWriter(self.driver.control, OTHER, found[1])

    def commit(self, removed: list[str], added: list[str]) -> None:
        """One batch, of which another task has other pages."""
        self.batch += 1
        self.pages = sorted({*self.pages} - {*removed} | {*added})
        self.writer.change(PageChange(self.batch, 10 * self.batch, removed, added))
        self.other.change(PageChange(self.batch, 10 * self.batch, [], [f"other-{self.batch}"]))

    def hold(self, held: Held) -> None:
        """The driver has added to an archive."""
        publish_held(self.driver.control, held)

    def send(self) -> None:
        """A batch begins."""
        self.sent.append(files_for(self.here, TASK))
        keep(self.there, self.sent[-1])

    def arrives_late(self, number: int) -> None:
        """An earlier attempt, of which nobody hopes anything anymore, writes what it was sent."""
        if self.sent:
            keep(self.there, self.sent[number % len(self.sent)])

    def require_same(self) -> None:
        """Each task sees the same in both places: one that stays, and one that is new."""
        here, there = driver_of(self.here), driver_of(self.there)
        assert (there.tag, there.control.name) == (here.tag, here.control.name)
        wanted = PageList(self.batch, 10 * self.batch, self.pages)
        for reader, copies in ((self.reader, self.copy_reader), (PageListReader(TASK), PageListReader(TASK))):
            assert reader.read(here.control) == wanted
            assert copies.read(there.control) == wanted
        assert read_held(there.control) == read_held(here.control)


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


PAGES = [f"p-{number:02}" for number in range(12)]
COMMIT = st.tuples(st.just("commit"), st.sets(st.sampled_from(PAGES), max_size=4))
SPANS = st.lists(st.tuples(st.integers(0, 99), st.integers(100, 199)), max_size=3)
HOLD = st.tuples(st.just("hold"), st.dictionaries(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1)), SPANS))
STEPS = st.lists(
    st.one_of(
        COMMIT,
        COMMIT,
        HOLD,
        st.tuples(st.just("send"), st.none()),
        st.tuples(st.just("send"), st.none()),
        st.tuples(st.just("late"), st.integers(0, 50)),
        st.tuples(st.just("open"), st.none()),
        st.tuples(st.just("read old"), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([0, 60, 200, 64 * 1024]))
def test_copies_say_what_the_files_of_the_driver_say(steps: list[tuple[str, object]], rewritten_after: int) -> None:
    """Batches of which the task gets nothing, files that are rewritten, new drivers, copies that arrive late."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_index, "_MIN_REWRITE_BYTES", rewritten_after)
        machines = Machines(Path(folder))
        for step, argument in steps:
            match step, argument:
                case "commit", set() as touched:
                    machines.commit(sorted(touched & {*machines.pages}), sorted(touched - {*machines.pages}))
                case "hold", dict() as held:
                    machines.hold(held)
                case "open", _:
                    machines.open()
                case "late", int() as number:
                    machines.arrives_late(number)
                case "read old", _ if machines.sent:  # the earlier attempt reads, too
                    machines.copy_reader.read(driver_of(machines.there).control)
                case "send", _:
                    machines.send()
                    machines.require_same()
        machines.send()
        machines.require_same()


def test_a_task_gets_its_own_files_only(machines: Machines) -> None:
    machines.hold({("a", 0): [(0, 7)]})
    folder = machines.driver.control.name

    assert files_for(machines.here, TASK).keys() == {"driver", f"{folder}/pages-t0003", f"{folder}/held"}


def test_a_task_without_pages_hears_who_the_driver_is(tmp_path: Path) -> None:
    open_for(tmp_path / "here/t", "q")

    keep(tmp_path / "there/t", files_for(tmp_path / "here/t", TASK))

    found = driver_of(tmp_path / "there/t")
    assert found.tag == "q"
    assert (PageListReader(TASK).read(found.control), read_held(found.control)) == (PageList(), {})


def test_a_table_that_no_driver_has_opened_is_none_elsewhere_either(tmp_path: Path) -> None:
    assert files_for(tmp_path / "here/t", TASK) == {}

    keep(tmp_path / "there/t", {})

    with pytest.raises(TableError, match="was not opened by a driver"):
        driver_of(tmp_path / "there/t")
    assert not (tmp_path / "there").exists()


def kept(machines: Machines) -> dict[str, tuple[int, int]]:
    """Which files there are elsewhere, and whether they are the same as before."""
    root = driver_of(machines.there).control.parent
    found = {path.relative_to(root).as_posix(): path.stat() for path in root.rglob("*") if path.is_file()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()}


def test_what_is_there_already_is_not_written_again(machines: Machines) -> None:
    machines.hold({("a", 0): [(0, 7)]})
    machines.send()
    before = kept(machines)

    machines.commit([], ["p"])
    machines.send()

    changed = {name for name, about in kept(machines).items() if before.get(name) != about}
    assert changed == {f"{machines.driver.control.name}/pages-t0003"}


@pytest.mark.parametrize("change", [lambda table: table.commit([], ["p"]), Machines.open])
def test_a_reader_never_sees_half_a_copy(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, change: Callable[[Machines], None]
) -> None:
    """Whoever names the driver was told its pages: a driver whose pages are missing would seem to have none."""
    machines.commit([], ["first"])
    machines.send()
    change(machines)
    seen: list[PageList] = []

    def watched(path: Path, content: bytes) -> None:
        replace_file(path, content)
        seen.append(PageListReader(TASK).read(driver_of(machines.there).control))

    monkeypatch.setattr(page_index, "replace_file", watched)
    machines.send()

    assert seen and all("first" in found.paths for found in seen)
