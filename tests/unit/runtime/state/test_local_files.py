"""A local store whose file is not what was written is thrown away and filled again, and never believed."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from deltaworks import processes
from deltaworks.errors import StateError
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state import local_files
from deltaworks.runtime.state.local_files import DATA
from deltaworks.runtime.state.local_store import EMPTY, LocalStore, StateVersion
from deltaworks.runtime.state.recovery import NOTHING, RecoveryAction, append, open_store
from tests.support.task_state import TaskState

STORES = {"counts": False, "windows": True}
PAGE = 4096

OPEN_ALL = """
import json, sys
from pathlib import Path
from deltaworks import processes
from tests.mutation import plugin
from tests.unit.runtime.state.test_local_files import opened_and_read
boot, *folders = sys.argv[1:]
processes.boot_id = lambda: boot
plugin.from_environment()
for folder in map(Path, folders):
    print(json.dumps([folder.name, *opened_and_read(folder)]), flush=True)
"""


@dataclass
class Written:
    """A store as it was before its last commit and after it, and what Spark's state says."""

    before: bytes
    after: bytes
    note: bytes
    state: TaskState
    content: dict[str, str]

    def put(self, folder: Path, data: bytes) -> Path:
        """A folder with such a data file."""
        folder.mkdir()
        (folder / DATA).write_bytes(data)
        (folder / "made.json").write_bytes(self.note)
        return folder

    @property
    def changed(self) -> list[int]:
        """Pages that the last commit has changed, those with the roots aside."""
        before = self.before.ljust(len(self.after), b"\0")
        pages = range(2, len(self.after) // PAGE)
        return [n for n in pages if before[n * PAGE :][:PAGE] != self.after[n * PAGE :][:PAGE]]


def write() -> TaskState:
    """The changes of 58 batches, always the same."""
    rng, state = random.Random(1), TaskState()
    for version in range(1, 59):
        keys = sorted(rng.sample(range(2000), 300))
        counts = [(key.to_bytes(4, "big"), f"value-{version}-{key}".encode()) for key in keys]
        windows = [(b"w" + (version * 300 + key).to_bytes(8, "big"), b"%d" % key) for key in keys[:50]]
        changes = {"counts": StoreChanges([*counts]), "windows": StoreChanges([*windows], version * 200)}
        append(state, state.version or NOTHING, StateVersion(version, version.to_bytes(12, "big")), changes)
    return state


def read(local: LocalStore) -> dict[str, str]:
    """All that is in it."""
    counts, windows = local.reader("counts"), local.reader("windows")
    entries = [*counts.scan(b"", None), *windows.scan(b"", None)]
    assert sorted(windows.scan_time(0, None)) == sorted(windows.scan(b"", None))
    assert all(counts.get(key) == value for key, value in counts.scan(b"", None))
    return {key.hex(): value.decode() for key, value in entries}


def opened_and_read(folder: Path) -> tuple[str, dict[str, str]]:
    """As a worker does it: a store that cannot be trusted is filled again, also if that shows only when it is read."""
    state = write()
    for _ in range(2):
        local = LocalStore.copy(folder, STORES)
        try:
            opened = open_store(local, state)[1]
            return opened.value, read(local)
        except StateError:
            local.discard()
        finally:
            local.close()
    raise AssertionError("a new store cannot be trusted")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    path = tmp_path_factory.mktemp("written") / "0-0"
    local, state, before = LocalStore(path, STORES), write(), b""
    assert state.version is not None
    for number, segment in enumerate(state.version.segments, start=1):
        header = type(state.version)(segment.version, state.version.segments[:number], segment.first + segment.chunks)
        before = (path / DATA).read_bytes()
        open_store(local, TaskState(header, state.segments))
    content = read(local)
    local.close()
    return Written(before, (path / DATA).read_bytes(), (path / "made.json").read_bytes(), state, content)


def in_processes(folder: Path) -> tuple[dict[str, str], int]:
    """Opens a store in a process of its own; what is in it, and how many processes have died of it."""
    for attempt in range(3):
        if attempt == 2:  # as `run_shard` does
            local_files.discard(folder)
        code = [sys.executable, "-c", OPEN_ALL, processes.boot_id(), str(folder)]
        done = subprocess.run(code, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return json.loads(done.stdout)[2], attempt
        assert done.returncode < 0, done.stderr
    raise AssertionError("a new store ends the process")


def torn(written: Written, root: Path) -> list[Path]:
    """As the machine may leave it when it crashes: a page of the last commit is not on the disk, or none is."""
    folders = []
    for lost in written.changed:
        old = written.before.ljust(len(written.after), b"\0")
        data = written.after[: lost * PAGE] + old[lost * PAGE :][:PAGE] + written.after[(lost + 1) * PAGE :]
        folders.append(written.put(root / f"lost-{lost}", data))
    return folders


def wrong(folders: list[Path], expected: dict[str, str]) -> list[str]:
    """Which of them were not read as they should be; all in one process, as none of them is to be read."""
    code = [sys.executable, "-c", OPEN_ALL, "another boot", *map(str, folders)]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    right = {
        name for name, opened, content in answers if content == expected and opened == RecoveryAction.REBUILD.value
    }
    return [folder.name for folder in folders if folder.name not in right]


def test_after_a_crash_of_the_machine_no_page_is_believed(written: Written, tmp_path: Path) -> None:
    """Checksums do not show what was lost: an old page has good ones."""
    folders = torn(written, tmp_path)
    assert len(folders) > 20
    assert wrong(folders, written.content) == []


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: b"",
    "one page": lambda data: data[:PAGE],
    "one byte less than two pages": lambda data: data[: 2 * PAGE - 1],
    "half": lambda data: data[: len(data) // 2],
    "all but the last page": lambda data: data[:-PAGE],
    "zeros": lambda data: bytes(len(data)),
    "zeros from the middle on": lambda data: data[: len(data) // 2].ljust(len(data), b"\0"),
    "garbage in the middle": lambda data: _garbage(data, len(data) // 2 // PAGE * PAGE, 8 * PAGE),
    "garbage at the begin": lambda data: _garbage(data, 0, 2 * PAGE),
}


MAY_KILL = {"zeros from the middle on", "garbage in the middle", "garbage at the begin"}
"""A file that is too short is seen before LMDB maps it."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_filled_again(written: Written, tmp_path: Path, damage: str) -> None:
    folder = written.put(tmp_path / "damaged", DAMAGES[damage](written.after))
    content, died = in_processes(folder)
    assert content == written.content
    assert died == 0 or damage in MAY_KILL


def test_a_value_that_is_another_one_is_found_by_its_checksum(written: Written, tmp_path: Path) -> None:
    values = [value.encode() for key, value in sorted(written.content.items()) if value.startswith("value-58-")]
    for value in values[:5]:
        at = written.after.rindex(value)
        data = written.after[:at] + b"w" + written.after[at + 1 :]
        local = LocalStore(written.put(tmp_path / value.decode(), data), STORES)
        with pytest.raises(StateError, match="an entry differs from what was written"):
            read(local)
        with pytest.raises(StateError, match="an error was found in it before"):
            local.refresh()
        local.close()
        with pytest.raises(StateError, match="it does not say how it was made"):
            LocalStore(tmp_path / value.decode(), STORES)  # in another process, too


def test_a_store_of_another_boot_or_format_is_refused_and_a_copy_recreated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "0-0"
    local = LocalStore(path, STORES)
    local.commit({"counts": StoreChanges([(b"k", b"v")])}, StateVersion(1, b"a"), EMPTY)
    local.close()
    note = path / "made.json"
    for change, said in (
        (lambda: monkeypatch.setattr(processes, "boot_id", lambda: "another boot"), "the machine was restarted"),
        (lambda: note.write_bytes(b'{"format": 1, "boot": null}'), "it has format 1, and this version reads format 2"),
        (lambda: note.write_bytes(b""), "it does not say how it was made"),
        (note.unlink, "it does not say how it was made"),
    ):
        kept = shutil.copytree(path, tmp_path / "kept")
        change()
        with pytest.raises(StateError, match=said):
            LocalStore(path, STORES)
        shutil.rmtree(path)
        monkeypatch.undo()
        kept.rename(path)

    monkeypatch.setattr(processes, "boot_id", lambda: "another boot")
    again = LocalStore.copy(path, STORES)
    assert again.version() == EMPTY
    again.close()
    assert [folder.name for folder in tmp_path.iterdir()] == ["0-0"], "nothing of the old one is left"


def test_a_store_that_waits_for_the_disk_outlives_the_boot_and_is_never_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = LocalStore(tmp_path / "0-0", STORES, durable=True)
    local.commit({"counts": StoreChanges([(b"k", b"v")])}, StateVersion(1, b"a"), EMPTY)
    local.close()
    monkeypatch.setattr(processes, "boot_id", lambda: "another boot")
    again = LocalStore(tmp_path / "0-0", STORES, durable=True)
    assert again.reader("counts").get(b"k") == b"v"
    local_files.distrust(tmp_path / "0-0")
    assert local_files.is_trusted(tmp_path / "0-0")
    again.close()


def _garbage(data: bytes, at: int, size: int) -> bytes:
    return data[:at] + random.Random(3).randbytes(size) + data[at + size :]
