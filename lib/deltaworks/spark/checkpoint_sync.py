"""Makes Spark's checkpoint durable in the background, and records up to which batch it is.

Spark renames files into place and syncs none, so after a loss of power any of them may be empty, torn or gone. A thread
beside the query syncs the files of committed batches, then replaces the *mark*: the batch, the durable files, and the
boot of the machine in which they were written. After another boot only the files in the mark are trusted
(`checkpoint_recovery`), and later batches run again from their intents. Nothing waits for this thread; the further it
lags behind, the more runs again.

Checksums (`.NAME.crc`) are not synced: one that does not fit a durable file is put aside at the next start.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import msgspec

from deltaworks import formats
from deltaworks.files import replace_file, sync, sync_folder
from deltaworks.spark import checkpoint_files as layout

FORMAT = 1
EVERY_S = 2.0
_Stamp = tuple[int, ...]
"""Identifies the content of a file: it changes when the file is written again."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What is durable of a checkpoint."""

    format: int = FORMAT
    batch: int | None
    """The last committed batch that is durable, by Spark's count; None: no batch."""
    boot_id: str
    """The boot of the machine when the mark was written: within it, files that are not synced are not lost."""
    files: list[str]
    """Durable files, relative to the checkpoint, without checksums."""


def read_mark(path: Path) -> Mark | None:
    """The mark of a checkpoint; None: it never had one.

    Raises:
        IncompatibleCheckpointError: another version of deltaworks wrote it, or the disk is damaged.
    """
    return formats.read(
        path,
        Mark,
        FORMAT,
        f"{path}, which says which files of Spark's checkpoint are on the disk,",
        damaged="it is replaced as a whole and synced, so the disk is damaged: bring back a copy of the folder. "
        "If the machine has not been restarted since the stream ran, the file may be deleted",
    )


def write_mark(path: Path, mark: Mark) -> None:
    """Replaces the mark durably."""
    replace_file(path, msgspec.json.encode(mark), durable=True)


def relative(checkpoint: Path, path: Path) -> str:
    """The name of a file in a mark."""
    return path.relative_to(checkpoint).as_posix()


class CheckpointSync:
    """A thread that syncs the checkpoint; one per query, beside its driver.

    Args:
        checkpoint: Spark's folder.
        mark: the file to keep.
        boot_id: of the machine, now.
        failed: called with an error (a full disk); the mark stays as it was, and the next batch tries again.
        every_s: at most one sync in so many seconds.
        admitted: the mark is replaced within it; it raises if a newer driver has taken over, whose mark says more.
    """

    def __init__(
        self,
        checkpoint: Path,
        mark: Path,
        boot_id: str,
        *,
        failed: Callable[[Exception], None],
        every_s: float = EVERY_S,
        admitted: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._checkpoint = checkpoint.absolute()
        self._mark = mark
        self._boot_id = boot_id
        self._failed = failed
        self._every_s = every_s
        self._admitted = admitted
        self._durable: dict[str, _Stamp] = {}
        self._folders: set[Path] = set()
        self._synced: int | None = None
        self._told: int = -1
        self._broken = False
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="checkpoint-sync", daemon=True)
        self._thread.start()

    @property
    def synced(self) -> int | None:
        """The batch of the last mark that this driver has written; None: it has not written one."""
        return self._synced

    def committed(self, batch: int) -> None:
        """Notes that a batch is done; Spark's own entry for it exists or is about to. Does not wait."""
        with self._changed:
            self._told = max(self._told, batch)
            self._changed.notify()

    def close(self) -> None:
        """Syncs what is committed by now, and ends the thread."""
        self.abandon()
        self._thread.join()
        self._try()

    def abandon(self) -> None:
        """Tells the thread to end, without waiting: a stream that failed must restart at once."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closing or self._told > (-1 if self._synced is None else self._synced)
                )
                if self._closing:
                    return
            self._try()
            with self._changed:
                self._changed.wait_for(lambda: self._closing, self._every_s)

    def _try(self) -> None:
        try:
            self.sync_now()
        except Exception as error:  # a full disk above all; the stream goes on, whatever it is
            self._broken = self._broken or (isinstance(error, OSError) and error.errno == errno.EIO)
            self._failed(error)

    def sync_now(self) -> None:
        """Syncs what is committed, and writes the mark.

        Raises:
            OSError: something could not be written; the mark stays as it was.
            FencedError: a newer driver has taken over; so does its mark.
        """
        batch = max(layout.numbered(self._checkpoint / layout.COMMITS), default=None)
        if batch is None or batch == self._synced or self._broken:
            return  # after EIO the system calls lost pages clean, so no later sync means anything
        found = dict(self._stamps(batch))
        self._sync([name for name, stamp in found.items() if self._durable.get(name) != stamp])
        with self._admitted():
            write_mark(self._mark, Mark(batch=batch, boot_id=self._boot_id, files=list(found)))
        self._durable = found
        self._synced = batch

    def _stamps(self, batch: int) -> Iterator[tuple[str, _Stamp]]:
        """The files of the batches up to one, and all files that belong to no batch.

        A file that is renamed into place has a new inode. SSTs are written in place.
        """
        for name, entry in layout.scan(self._checkpoint):
            number = layout.batch_of(name)
            if number is None:
                with suppress(FileNotFoundError):
                    about = entry.stat()
                    yield name, (about.st_ino, about.st_mtime_ns, about.st_size)
            elif number <= batch:
                yield name, (entry.inode(),)

    def _sync(self, names: Iterable[str]) -> None:
        """Syncs the files. A file that vanishes meanwhile was purged by Spark, which no longer needs it."""
        files = [self._checkpoint / name for name in names]
        while files:
            try:
                sync(files)
                break
            except FileNotFoundError:
                files = [each for each in files if each.exists()]
        above = {folder for each in files for folder in each.parents if folder.is_relative_to(self._checkpoint)}
        for folder in above - self._folders:
            sync_folder(folder.parent)  # it holds the folder's name
        self._folders |= above
