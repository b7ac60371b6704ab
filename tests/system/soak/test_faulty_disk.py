"""The disk of the soak: what was synced survives every loss of power, what was not is lost in some; a full disk."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.soak.faulty_disk import Disk, Journal

SEEDS = range(24)
PROGRAM = """
import os, signal, sys
os.chdir(sys.argv[1])

def write(name, data, sync):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, data)
    if sync:
        os.fsync(fd)
    os.close(fd)

def sync(folder):
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

os.mkdir("kept")
os.mkdir("loose")
sync(".")
write("kept/file", b"a" * 9000, sync=True)
write("kept/replaced", b"old", sync=True)
write("kept/tmp", b"new" * 5000, sync=True)
os.replace("kept/tmp", "kept/replaced")
write("kept/unlinked", b"x", sync=True)
os.unlink("kept/unlinked")
os.link("kept/file", "kept/linked")
sync("kept")
write("kept/file", b"b" * 9000, sync=False)  # beyond what was synced
write("loose/renamed", b"old", sync=True)
write("loose/unlinked", b"x", sync=True)
sync("loose")
write("loose/tmp", b"new", sync=True)
os.replace("loose/tmp", "loose/renamed")
os.unlink("loose/unlinked")
write("loose/created", b"x" * 100, sync=True)
write("loose/bytes", b"x" * 9000, sync=False)
sys.stdout.write("written")
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    folder = tmp_path.resolve()
    (folder / "home").mkdir()
    built = Disk((folder / "home",), folder / "disk")
    built.build()
    return built


def run(disk: Disk, program: str) -> str:
    command = [sys.executable, "-I", "-c", program, str(disk.prefixes[0])]
    return subprocess.run(
        command, env={**os.environ, **disk.environment()}, stdout=subprocess.PIPE, text=True, check=False
    ).stdout


def after_power_loss(disk: Disk, seed: int) -> dict[str, bytes]:
    """Path -> content, once the program was cut off."""
    home = disk.prefixes[0]
    for path in sorted(home.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    disk.log.unlink(missing_ok=True)
    disk.journal = Journal()
    assert run(disk, PROGRAM) == "written"
    disk.lose_power(random.Random(seed))
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_what_was_synced_survives_and_what_was_not_is_lost_in_some_seeds(disk: Disk) -> None:
    found = [after_power_loss(disk, seed) for seed in SEEDS]
    for files in found:
        assert files["kept/replaced"] == b"new" * 5000
        assert files["kept/file"][:9000] == b"a" * 9000
        assert files["kept/linked"] == files["kept/file"]
        assert "kept/unlinked" not in files
        assert files["loose/renamed"] in (b"old", b"new")
        assert files.get("loose/created", b"x" * 100) == b"x" * 100  # its bytes were synced, its name was not
    assert {len(files["kept/file"]) > 9000 for files in found} == {True, False}
    assert {files["loose/renamed"] for files in found} == {b"old", b"new"}
    assert {"loose/unlinked" in files for files in found} == {True, False}
    assert {"loose/created" in files for files in found} == {True, False}
    contents = {files.get("loose/bytes") for files in found}
    assert {None, b"x" * 9000} <= contents
    assert any(content is not None and content != b"x" * 9000 for content in contents)


def test_all_lines_of_processes_side_by_side_are_whole(disk: Disk) -> None:
    program = (
        "import os, sys\nos.chdir(sys.argv[1])\nfor _ in range(3): os.fork()\n"
        "fd = os.open(f'{os.getpid()}', os.O_WRONLY | os.O_CREAT)\n"
        "for _ in range(500): os.write(fd, b'x')\n"
        "os.fsync(fd)\nwhile True:\n    try: os.wait()\n    except ChildProcessError: break\n"
    )
    run(disk, program)
    lines = disk.log.read_text().splitlines()
    assert len([line for line in lines if line.split("\t")[1] == "W"]) == 8 * 500
    assert len([line for line in lines if line.split("\t")[1] == "S"]) == 8


def test_a_full_disk_takes_nothing_new_until_there_is_room(disk: Disk) -> None:
    program = """
import errno, os, sys
os.chdir(sys.argv[1])
def tried(act):
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
fd = os.open("file", os.O_RDWR)
print(tried(lambda: os.pwrite(fd, b"again", 0)))
print(tried(lambda: [os.pwrite(fd, b"more" * 100, 10) for _ in range(20)]))
print(tried(lambda: open("new", "w")), tried(lambda: os.mkdir("folder")), tried(lambda: os.ftruncate(fd, 10**6)))
print(tried(lambda: open("/tmp/elsewhere-" + str(os.getpid()), "w").close()))
os.unlink("/tmp/elsewhere-" + str(os.getpid()))
"""
    (disk.prefixes[0] / "file").write_bytes(b"0123456789")
    disk.full.touch()
    assert run(disk, program).split() == ["done", "ENOSPC", "ENOSPC", "ENOSPC", "ENOSPC", "done"]
    disk.full.unlink()
    assert run(disk, program).split() == ["done"] * 6


def test_a_journal_that_was_cut_short_is_read_as_far_as_it_goes() -> None:
    journal = Journal()
    journal.take(["1000\tC\t/disk/a\t7", "2000\tW\t7\t0\t10", "", "30", "3000"])
    assert [entry.paths for entry in journal.entries] == [("/disk/a",)]
