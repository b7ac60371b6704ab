"""The stores of one task as another process reads them: as of a batch that Spark has committed, never in between.

A task's folder has its local store, which holds the state that earlier batches have left, and the changes of its newest
batch (`published`). Which of the two count for a batch follows from their versions: see `TaskReader.begin`. If they do
not fit together (a store is being filled, a batch was committed meanwhile), an error says to ask again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb

from deltaworks.errors import ConfigurationError, StateError, StoreUnavailableError
from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.state import StateBackend, StoreChanges
from deltaworks.runtime.global_tables import global_path
from deltaworks.runtime.state import local_files, published
from deltaworks.runtime.state.local_store import (
    EMPTY,
    MAP_SIZE,
    MAX_STORES,
    Changes,
    Databases,
    LocalReader,
    StateVersion,
    databases_of,
    size_in,
    version_in,
)
from deltaworks.runtime.state.overlay import Overlay
from deltaworks.runtime.state.published import Published
from deltaworks.runtime.state.recovery import local_path

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from lmdb import Environment, Transaction

    _Transaction = Transaction[bytes]

IntentOf = Callable[[int], str | None]
"""Batch id -> digest of its intent; None: it is not known any more."""


class TaskReader:
    """Opens the stores of a task for reading, again whenever the task has thrown them away. For one thread at a time.

    What `begin` or `begin_newest` gives is valid until `end`, which follows each of them, also one that has failed.

    Args:
        folder: of the task's local store.
        timed: see `LocalStore`.
    """

    def __init__(self, folder: Path, timed: Mapping[str, bool]) -> None:
        self._folder, self._timed = folder, dict(timed)
        self._opened: _Opened | None = None

    def begin(self, batch: int, intent_of: IntentOf) -> TaskState:
        """The state that a batch has left.

        `published` is read after `batch` was found committed. Every batch of the task publishes before it can be
        committed, so the file is of the task's last batch up to this one, or of the one that is in process:

        - in process: the store must be at the version that it began with;
        - up to this batch: the store has its version, or the one before, and then the changes count. They do not if
          their batch was replaced by another one of the same id, without this task, which the intent shows.

        Args:
            batch: the last batch that Spark has committed, by our own count.
            intent_of: see there.

        Raises:
            StoreUnavailableError: the task has no store, it is being filled, or another batch was committed meanwhile.
        """
        opened = self._open()
        found = opened.published()
        try:
            return opened.state_of(found, opened.begin(), batch, intent_of)
        except lmdb.Error as error:
            raise unavailable(f"{self._folder}: {type(error).__name__}: {error}") from error

    def begin_newest(self) -> TaskState:
        """The state of the last commit, of a store that needs no batch (a global table).

        Raises:
            StoreUnavailableError: there is no store, or nothing in it.
        """
        opened = self._open()
        try:
            version = opened.begin()
        except lmdb.Error as error:
            raise unavailable(f"{self._folder}: {type(error).__name__}: {error}") from error
        if version == EMPTY:
            raise unavailable(f"{self._folder.name} is not filled yet")
        return TaskState(opened, version)

    def end(self) -> None:
        """Nothing is read any more."""
        if self._opened is not None:
            self._opened.end()

    def close(self) -> None:
        """Lets go of the store."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _open(self) -> _Opened:
        opened = self._opened
        if opened is not None and opened.is_current():
            return opened
        self.close()
        identity = local_files.identity(self._folder)
        if identity is None:
            raise unavailable(f"the task of {self._folder.name} has no store on this machine")
        self._opened = _Opened(self._folder, self._timed, identity)
        return self._opened


class TaskReaders:
    """Those of all tasks whose stores are below a folder.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._readers: dict[tuple[int, int | None], TaskReader] = {}

    def reader(self, stage: int, task: int | None, timed: Mapping[str, bool]) -> TaskReader:
        """The reader of a task, made on first use.

        Args:
            stage: number of its stage.
            task: its number; None: the stage is one of global tables.
            timed: see `TaskReader`.
        """
        at = stage, task
        if at not in self._readers:
            folder = global_path(self._root, stage) if task is None else local_path(self._root, stage, task)
            self._readers[at] = TaskReader(folder, timed)
        return self._readers[at]

    def close(self) -> None:
        """Lets go of all stores."""
        for reader in self._readers.values():
            reader.close()


class TaskState:
    """The stores of a task as of a batch."""

    def __init__(self, opened: _Opened, version: StateVersion, overlaid: _Overlaid | None = None) -> None:
        self._opened, self._overlaid = opened, overlaid
        self.backend: StateBackend = opened if overlaid is None else overlaid.overlay
        """Its stores."""
        self.version = version
        """The version of the state."""
        self.identity = version, self.backend
        """Equal for states that are equal and are read in the same way."""

    def size(self, store: str) -> tuple[int, int]:
        """Entries of a store, and bytes of its pages on the disk.

        It counts the changes of the newest batch, if they are not in the local store yet, and nothing else.
        """
        entries, size_bytes = self._opened.size(store)
        change = None if self._overlaid is None else self._overlaid.changes.get(store)
        if change is None:
            return entries, size_bytes
        below, gone_ms = self._opened.reader(store), change.expire_before_ms
        if gone_ms is not None:
            entries -= sum(1 for _ in below.scan_time(0, gone_ms))
        for key, value in _not_expired(change):
            entries += (value is not None) - (below.get(key) is not None)
        return entries, size_bytes

    def changes(self, store: str, batch: int, intent_of: IntentOf) -> Sequence[tuple[bytes, bytes | None]] | None:
        """What a batch, which the state is of, has changed in a store: each key with its new value, in no order.

        What has expired in a timed store is left out.

        Args:
            store: its name.
            batch: as it was given to `TaskReader.begin`.
            intent_of: likewise.

        Returns:
            None: it is not known any more, since the task has begun the next batch, or has started after this one.
        """
        found = self._opened.last_published
        if found is None or found.head.batch > batch:
            return None
        if found.head.batch < batch:
            return ()
        if not found.head.intent:
            return None
        if found.head.intent != intent_of(batch):
            return ()
        change = found.changes().get(store)
        return () if change is None else list(_not_expired(change))


@dataclass(frozen=True)
class _Overlaid:
    """The changes of a batch over the store that they were made from."""

    version: StateVersion
    changes: Changes
    overlay: Overlay


class _Opened:
    def __init__(self, folder: Path, timed: Mapping[str, bool], identity: tuple[int, int]) -> None:
        self._identity, self._folder = identity, folder
        self._data, self._published_at = str(folder / local_files.DATA), str(folder / published.NAME)
        try:
            local_files.require_intact(folder)
            self._env = _environment(folder)
        except StateError as error:
            raise unavailable(error.message) from error
        try:
            self.databases: Databases = databases_of(self._env, timed, create=False)
            size = (self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"]
            local_files.require_whole(folder, size)
        except (StateError, lmdb.Error) as error:
            self._env.close()
            raise unavailable(f"{folder}: {error}") from error
        self._txn: _Transaction | None = None
        self._within: AbstractContextManager[Any] = nullcontext()
        self._readers: dict[str, LocalReader] = {}
        self._published: tuple[tuple[int, int, int] | None, Published | None] = (None, None)
        self._overlaid: _Overlaid | None = None

    def reader(self, store: str) -> LocalReader:
        """As in `StateBackend`; it reads in the transaction that is open."""
        if store not in self._readers:
            databases = self.databases
            self._readers[store] = LocalReader(
                self._folder, lambda: self._within, databases.entries[store], databases.times.get(store), is_mine=False
            )
        return self._readers[store]

    @property
    def last_published(self) -> Published | None:
        """The file as it was when it was last looked at."""
        return self._published[1]

    def published(self) -> Published | None:
        """The file as it is now; it is read again only if it was replaced."""
        try:
            found = os.stat(self._published_at)  # noqa: PTH116 (a path object costs as much again)
        except FileNotFoundError:
            return None
        stamp = found.st_ino, found.st_mtime_ns, found.st_size
        if self._published[0] != stamp:
            self._published = stamp, published.read(self._folder)
        return self._published[1]

    def is_current(self) -> bool:
        """Whether it is the store in the folder, and its owner trusts it."""
        try:
            found = os.stat(self._data)  # noqa: PTH116
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._identity and local_files.is_trusted(self._folder)

    def begin(self) -> StateVersion:
        """Begins a transaction; the version that it sees."""
        self.end()
        self._txn = txn = self._env.begin()
        self._within = nullcontext(txn)
        return version_in(txn, self.databases)

    def end(self) -> None:
        """Ends the transaction, if there is one."""
        if self._txn is not None:
            self._txn.abort()
            self._txn = None

    def state_of(self, found: Published | None, version: StateVersion, batch: int, intent_of: IntentOf) -> TaskState:
        """See `TaskReader.begin`."""
        name = self._folder.name
        if found is None:
            raise unavailable(f"the task of {name} has not said since its start which batch its store is of")
        head = found.head
        if head.batch > batch:
            if head.batch == batch + 1 and version == head.base:
                return TaskState(self, version)
            raise unavailable(f"the store of {name} has gone on to batch {head.batch}")
        if version == head.version:
            return TaskState(self, version)
        if version != head.base:
            raise unavailable(f"the store of {name} is being filled")
        intent = intent_of(head.batch)
        if intent is None:
            raise unavailable(f"it is no longer known whether the changes of batch {head.batch} in {name} count")
        if intent != head.intent:
            return TaskState(self, version)
        return TaskState(self, head.version, self._with(found))

    def _with(self, found: Published) -> _Overlaid:
        known = self._overlaid
        if known is None or known.version != found.head.version:
            changes, overlay = found.changes(), Overlay(self)
            overlay.apply(changes)
            known = self._overlaid = _Overlaid(found.head.version, changes, overlay)
        return known

    def size(self, store: str) -> tuple[int, int]:
        """Entries, and bytes of pages."""
        with self._within as txn:
            return size_in(txn, self.databases, store)

    def close(self) -> None:
        self.end()
        self._env.close()


def _not_expired(change: StoreChanges) -> Iterator[tuple[bytes, bytes | None]]:
    """The entries of a change; of a timed store, those that it does not drop."""
    gone_ms = change.expire_before_ms
    for key, value in change.entries:
        if gone_ms is None or int.from_bytes(key[-TIME_BYTES:], "big") >= gone_ms:
            yield key, value


def _environment(folder: Path) -> Environment:
    try:
        # With a lock, writers see what is still read, and use its pages for nothing else.
        return lmdb.open(str(folder), map_size=MAP_SIZE, max_dbs=2 * MAX_STORES, readonly=True, create=False, lock=True)
    except lmdb.Error as error:
        if "already open in this process" in str(error):
            raise ConfigurationError(
                f"The store {folder} is open in this process already.",
                hint="share what `queries.open` has given, or close it before the next one is opened",
            ) from error
        raise unavailable(f"{folder}: {error}") from error


def unavailable(why: str) -> StoreUnavailableError:
    """The error for what another attempt may find."""
    return StoreUnavailableError(
        f"The store cannot be read now: {why}.",
        hint="ask again; it goes on with the next batch of the stream",
    )
