"""The disk of the soak: the preloaded library (`native/faulty_disk.c`), and what a loss of power takes back.

The library writes a journal of what processes do below some folders. Once all of them are dead, `Disk.lose_power` takes
a random part of what was not synced back, as POSIX allows it and no more:

- bytes that were written after the last fsync of their file: cut off, or zeros or garbage in their place; bytes below
  the size that was synced stay, unless they never were synced;
- entries of a folder (new file, link, rename, unlink, new folder) after the last fsync of the folder: gone, and what
  was there before is there again; in any order that a name allows. A rename between two folders holds once either is
  synced.

It does less than the standard allows in two cases. Bytes that were synced and then overwritten in place stay as they
are now: what they were is not known. And entries of folders that are older than `WRITTEN_BACK_S` count as durable, as
if the kernel had written them back.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.support import native

SOURCE = Path(__file__).with_name("native") / "faulty_disk.c"
WRITTEN_BACK_S = 120.0
_PAGE = 4096
_PATHS_OF = {"C": 1, "L": 1, "U": 1, "K": 1, "R": 2}
"""Kind of an entry's line -> how many paths it names."""


@dataclass(frozen=True)
class Entry:
    """A change of a folder's entries that is not known to be durable."""

    at_s: float
    kind: str
    """`C` new file, `L` link, `R` rename, `U` unlink, `K` new folder; as in the journal."""
    paths: tuple[str, ...]
    """Of a rename: from, to."""
    inode: int
    shadow: str
    """Where the file is kept that has lost this name; `-`: there was none."""

    @property
    def folders(self) -> set[str]:
        return {path.rpartition("/")[0] for path in self.paths}


@dataclass
class Content:
    """What is known of a file's bytes."""

    synced: int | None = None
    """Size at the last sync; None: never."""
    dirty: list[tuple[int, int]] = field(default_factory=list)
    """Offset and size of what was written since."""


@dataclass(frozen=True)
class Lost:
    """What a loss of power took."""

    entries: int
    files: int
    """With bytes that are gone."""
    examples: tuple[str, ...] = ()


@dataclass
class Journal:
    """What the lines so far say; pure."""

    contents: dict[int, Content] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    """Oldest first."""

    def take(self, lines: Sequence[str]) -> None:
        """Reads on; a line that is cut short at the end of a killed process says nothing."""
        for line in lines:
            at_ns, _, rest = line.partition("\t")
            kind, *fields = rest.split("\t")
            if at_ns.isdigit() and kind:
                self._take(int(at_ns) / 1e9, kind, fields)

    def _take(self, at_s: float, kind: str, fields: list[str]) -> None:
        match kind:
            case "W":
                inode, offset, size = map(int, fields)
                self._of(inode).dirty.append((offset, size))
            case "T":
                inode, size = map(int, fields)
                content = self._of(inode)
                if content.synced is not None:
                    content.synced = min(content.synced, size)
                content.dirty.append((size, 0))
            case "S":
                inode, size = map(int, fields)
                self.contents[inode] = Content(synced=size)
            case "C":
                self.contents[int(fields[1])] = Content(dirty=[(0, 0)])  # an inode may be used again
                self.entries.append(Entry(at_s, kind, (fields[0],), int(fields[1]), "-"))
            case "L":
                self.entries.append(Entry(at_s, kind, (fields[0],), int(fields[1]), "-"))
            case "K":
                self.entries.append(Entry(at_s, kind, (fields[0],), 0, "-"))
            case "U":
                self.entries.append(Entry(at_s, kind, (fields[0],), int(fields[1]), fields[2]))
            case "R":
                self.entries.append(Entry(at_s, kind, (fields[0], fields[1]), int(fields[2]), fields[3]))
            case "D":
                self.entries = [entry for entry in self.entries if fields[0] not in entry.folders]
            case "A":
                self.entries.clear()
                self.contents.clear()

    def _of(self, inode: int) -> Content:
        # A file that was there before the journal began counts as synced as far as it reached then.
        return self.contents.setdefault(inode, Content(synced=1 << 62))

    def forget_before(self, at_s: float) -> list[Entry]:
        """Entries that the kernel has written back by now; their shadows are of no use any more."""
        old = [entry for entry in self.entries if entry.at_s < at_s]
        self.entries = [entry for entry in self.entries if entry.at_s >= at_s]
        return old


@dataclass
class Disk:
    """The folders of a run whose files may be lost, and where that is written down."""

    prefixes: tuple[Path, ...]
    """Without symbolic links."""
    work: Path
    """Outside of them, on the same file system."""
    journal: Journal = field(default_factory=Journal)

    def __post_init__(self) -> None:
        self.shadows.mkdir(parents=True, exist_ok=True)

    @property
    def preloaded(self) -> Path:
        return self.work / "faulty_disk.so"

    @property
    def shadows(self) -> Path:
        return self.work / "shadows"

    @property
    def log(self) -> Path:
        return self.work / "journal"

    @property
    def full(self) -> Path:
        """The disk is full while this file exists."""
        return self.work / "full"

    @property
    def refused(self) -> Path:
        """A line for everything that did not fit."""
        return self.work / "refused"

    @property
    def refusals(self) -> int:
        """How much did not fit so far."""
        return self.refused.stat().st_size // 2 if self.refused.exists() else 0

    def build(self) -> None:
        """Compiles the library.

        Raises:
            NoCompilerError: there is none, or it does not compile.
        """
        native.build(SOURCE, self.preloaded)

    def environment(self, *, journal: bool = True) -> Mapping[str, str]:
        """Of a process that shall write to this disk."""
        chosen = {
            "LD_PRELOAD": str(self.preloaded),
            "SOAK_DISK_PREFIXES": ":".join(map(str, self.prefixes)),
            "SOAK_DISK_FULL": str(self.full),
            "SOAK_DISK_REFUSED": str(self.refused),
        }
        if journal:
            chosen |= {"SOAK_DISK_JOURNAL": str(self.log), "SOAK_DISK_SHADOWS": str(self.shadows)}
        return chosen

    def keep_up(self) -> None:
        """Reads the journal so far and frees what is durable by now; processes may go on writing."""
        self._read()
        for entry in self.journal.forget_before(time.time() - WRITTEN_BACK_S):
            if entry.shadow not in ("-", "folder", "lost"):
                (self.shadows / entry.shadow).unlink(missing_ok=True)

    def lose_power(self, rng: random.Random) -> Lost:
        """Takes a random legal part of what was not synced back; every process that writes here is dead."""
        self.keep_up()
        names, contents = rng.choices([0.0, 0.5, 0.8, 1.0], k=2)  # how probable it is that one has reached the disk
        gone = self._take_entries_back(rng, names)
        cut = self._take_bytes_back(rng, contents if names < 1.0 else 0.0)
        self.journal = Journal()
        shutil.rmtree(self.shadows)
        self.shadows.mkdir()
        return Lost(len(gone), len(cut), (*gone[:10], *cut[:10]))

    def _read(self) -> None:
        if not self.log.exists():
            return
        taken = self.log.with_suffix(".taken")
        self.log.replace(taken)
        time.sleep(0.05)  # who opened it before writes its line now
        self.journal.take(taken.read_text(errors="replace").split("\n"))
        taken.unlink()

    def _take_entries_back(self, rng: random.Random, mercy: float) -> list[str]:
        """From the newest to the oldest; what stays protects what came before it under the same names."""
        gone: list[str] = []
        kept: set[str] = set()
        for entry in reversed(self.journal.entries):
            protected = any(_related(path, name) for path in entry.paths for name in kept)
            if protected or rng.random() < mercy or not self._undo(entry):
                kept.update(entry.paths)
            else:
                gone.append(f"{entry.kind} {' -> '.join(entry.paths)}")
        return gone

    def _undo(self, entry: Entry) -> bool:
        last = Path(entry.paths[-1])
        shadow = self.shadows / entry.shadow
        match entry.kind:
            case "C" | "L":
                if _inode(last) != entry.inode:
                    return False
                last.unlink()
            case "K":
                try:
                    last.rmdir()
                except OSError:
                    return False
            case "U":
                if entry.shadow in ("-", "folder", "lost") or os.path.lexists(last) or not last.parent.is_dir():
                    return False
                os.link(shadow, last)
            case "R":
                first = Path(entry.paths[0])
                if entry.shadow in ("folder", "lost") or _inode(last) != entry.inode:
                    return False
                if os.path.lexists(first) or not first.parent.is_dir():
                    return False
                last.rename(first)
                if entry.shadow != "-":
                    os.link(shadow, last)
            case _:
                return False
        return True

    def _take_bytes_back(self, rng: random.Random, mercy: float) -> list[str]:
        cut: list[str] = []
        seen: set[int] = set()
        for path, inode, size in sorted(self._files()):
            content = self.journal.contents.get(inode)
            if content is None or not content.dirty or inode in seen:
                continue
            seen.add(inode)
            if rng.random() >= mercy and _damage(path, size, content, rng):
                cut.append(f"{path} ({size} bytes, {content.synced} synced)")
        return cut

    def _files(self) -> Iterator[tuple[Path, int, int]]:
        for prefix in self.prefixes:
            for folder, _, names in os.walk(prefix):
                for name in names:
                    path = Path(folder, name)
                    status = path.lstat()
                    if not path.is_symlink():
                        yield path, status.st_ino, status.st_size


def _damage(path: Path, size: int, content: Content, rng: random.Random) -> bool:
    """Makes the bytes of a file that were not synced what they may be after a loss of power."""
    safe = min(content.synced or 0, size)
    if safe == size:
        return False
    how: Literal["cut", "shorter", "zeros", "garbage"] = rng.choice(["cut", "shorter", "zeros", "garbage"])
    if how in ("cut", "shorter"):
        os.truncate(path, safe if how == "cut" else rng.randrange(safe, size))
        return True
    ranges = [(max(at, safe), min(at + length, size)) for at, length in content.dirty]
    spoilt = [(begin, end) for begin, end in ranges if begin < end and rng.random() < 0.7] or [(safe, size)]
    with path.open("r+b") as file:
        for begin, end in spoilt:
            for page in range(begin, end, _PAGE):
                file.seek(page)
                length = min(_PAGE, end - page)
                file.write(bytes(length) if how == "zeros" else rng.randbytes(length))
    return True


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def _related(path: str, name: str) -> bool:
    """One is the other, or lies in it."""
    return path == name or path.startswith(f"{name}/") or name.startswith(f"{path}/")
