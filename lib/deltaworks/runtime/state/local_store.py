"""The stores of one task on the executor's disk: LMDB, readable by every Python worker that may get the task.

It holds the state that committed batches have left, and a `StateVersion` that says up to which one. A writer names the
version that it has read; if the store has another one, nothing is changed. For a stream it is a cache of Spark's
checkpoint, thrown away at the slightest doubt: another boot of the machine, another format, a page or a value that
differs from what was written (`local_files`). `recovery.py` says when it is written, and what from. A replay keeps its
state in it (`replay/`): then each commit waits for the disk.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

import lmdb
import msgspec

from deltaworks import clock
from deltaworks.errors import StateError
from deltaworks.faults import reach
from deltaworks.files import lock, unlock
from deltaworks.kernel.stores.ordered import after_prefix
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.task import TASK_STORE
from deltaworks.runtime.state import local_files
from deltaworks.runtime.state.local_files import discard
from deltaworks.topology.stages import Stage

__all__ = [
    "EMPTY",
    "LONG_KEY",
    "MAP_SIZE",
    "MAX_STORES",
    "UNFINISHED",
    "Changes",
    "Databases",
    "LocalReader",
    "LocalStore",
    "LocalTransaction",
    "StateVersion",
    "databases_of",
    "discard",
    "size_in",
    "stores_of",
    "version_in",
]

MAP_SIZE = 1 << 38
MAX_STORES = 256
_PATIENCE_S = 10.0
"""How long one writer waits for another that makes no progress: a process of an older generation may be suspended in
the middle of a write."""
LONG_KEY = 460
"""LMDB keys end at 511 bytes; longer ones are stored by prefix and digest, with the whole key before the value."""
_DIGEST = 24
_MARK = b"."
"""A prefix of every key, because LMDB has no empty key."""
_META = b"!meta"
_STAMP = b"version"
_CHECK_BYTES = 4
"""A checksum of key and value follows every value, so that the checksum of all three is always the same."""
_INTACT = 0x2144DF1C
_MARKED = crc32(_MARK)
_SUM = Struct("<I").pack
_KEY = itemgetter(0)

if TYPE_CHECKING:
    from lmdb import Environment, Transaction, _Database

    _Transaction = Transaction[bytes]
    _Transactions = AbstractContextManager[_Transaction]

Changes = Mapping[str, StoreChanges]


class StateVersion(msgspec.Struct, frozen=True, array_like=True):
    """Identity of one committed state of a task.

    The nonce is random: a failed attempt may have used the same number, never the same nonce.
    """

    number: int
    nonce: bytes


EMPTY = StateVersion(0, b"")
"""The version of a store to which nothing was ever committed."""
UNFINISHED = StateVersion(0, b"unfinished")
"""The version of a store that is being rebuilt. No committed state has it, so it is never taken for one."""


@dataclass(frozen=True)
class Databases:
    """The databases of one environment: entries, and indexes by time, by store."""

    meta: _Database
    entries: Mapping[str, _Database]
    times: Mapping[str, _Database]


def databases_of(env: Environment, timed: Mapping[str, bool], *, create: bool = True) -> Databases:
    """Opens the databases of some stores.

    Args:
        env: of a task.
        timed: see `LocalStore`.
        create: makes those that are missing; else `lmdb.NotFoundError`.
    """
    return Databases(
        env.open_db(_META, create=create),
        {name: env.open_db(b"e:" + name.encode(), create=create) for name in timed},
        {name: env.open_db(b"t:" + name.encode(), create=create) for name in timed if timed[name]},
    )


class LocalStore:
    """One LMDB environment: a database per store, and an index by time per timed store.

    Any error of LMDB or of a checksum becomes a `StateError`, and the store is distrusted from then on. Its owner has
    to `discard` and refill it.
    """

    def __init__(self, path: Path, timed: Mapping[str, bool], *, durable: bool = False) -> None:
        """Opens or creates the environment.

        Args:
            path: Directory of this task.
            timed: Store name -> the last 8 bytes of its keys are a time.
            durable: Every commit waits for the disk, because nothing else holds what is in it.

        Raises:
            StateError: it cannot be trusted.
        """
        self._path, self._timed, self._durable = path, dict(timed), durable
        self._open()

    @classmethod
    def copy(cls, path: Path, timed: Mapping[str, bool]) -> LocalStore:
        """Opens a store that can be filled again: replaces one that cannot be trusted by a new one."""
        found = local_files.identity(path)
        try:
            return cls(path, timed)
        except StateError:
            if local_files.identity(path) == found:  # else another process has replaced it
                discard(path)
        return cls(path, timed)

    def version(self) -> StateVersion:
        """The version of the last commit."""
        with self._guarded(), self._env.begin() as txn:
            return version_in(txn, self._databases)

    def reader(self, store: str) -> LocalReader:
        """Every call sees the last commit. Valid until the store is opened again (`discard`, `refresh`)."""
        databases = self._databases
        return LocalReader(self._path, self._env.begin, databases.entries[store], databases.times.get(store))

    @contextmanager
    def transaction(self) -> Iterator[LocalTransaction]:
        """Waits for other writers, in any process. Nothing is changed unless it is committed.

        Raises:
            StateError: another writer does not end.
        """
        with self._guarded(), self._alone():
            self._env.reader_check()  # a reader that was killed keeps old pages from being used again
            transaction = LocalTransaction(self._path, self._begin, self._writer, self._databases)
            try:
                yield transaction
            finally:
                if not transaction.committed:
                    transaction.abort()
            if transaction.committed:
                local_files.extend(self._path, self._size_bytes())

    def commit(self, changes: Changes, version: StateVersion, previous: StateVersion | None) -> None:
        """Applies the changes of one batch in one transaction.

        Args:
            changes: The changes of the batch.
            version: The version that they lead to.
            previous: The version that they were made from; None: an empty store.

        Raises:
            StateError: the store is at another version; another process has written it meanwhile.
        """
        with self.transaction() as transaction:
            transaction.require(previous or EMPTY)
            transaction.apply(changes)
            reach("store.applied")
            transaction.commit(version)

    def require(self, version: StateVersion) -> None:
        """Raises `StateError` if the store is at another state."""
        _require(self._path, self.version(), version)

    def rebuild(self, history: Iterator[Changes], version: StateVersion, previous: StateVersion | None) -> None:
        """Replaces everything by the changelog, oldest segment first; for `previous` see `commit`."""
        with self.transaction() as transaction:
            transaction.require(previous or EMPTY)
            transaction.clear()
            for changes in history:
                transaction.apply(changes)
            transaction.commit(version)

    def entry_count(self) -> int:
        with self._guarded(), self._env.begin() as txn:
            return _entry_count(txn, self._databases)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Store -> its entries, and the bytes of its pages, without those of free ones."""
        with self._guarded(), self._env.begin() as txn:
            return {name: size_in(txn, self._databases, name) for name in self._databases.entries}

    def refresh(self) -> bool:
        """Opens the current store in the folder, if another process has thrown away the one that was there.

        Returns:
            Whether it did; if so, readers of the store have to be made again.

        Raises:
            StateError: it cannot be trusted.
        """
        if local_files.identity(self._path) == self._identity:
            if not local_files.is_trusted(self._path):
                raise local_files.doubt(self._path, "an error was found in it before")
            return False
        self.close()
        self._open()
        return True

    def discard(self) -> None:
        """Throws everything away, and opens a new store in its place, or the one that another process has made there.

        Raises:
            StateError: a new store cannot be made.
        """
        is_mine = local_files.identity(self._path) == self._identity
        self.close()
        if is_mine:
            discard(self._path)
        try:
            self._open()
        except StateError:
            discard(self._path)
            self._open()

    def close(self) -> None:
        self._env.close()
        self._close_writer()

    def _begin(self) -> _Transaction:
        return self._env.begin(write=True)  # no context of its own: in LMDB 2, that ends what has ended

    def _open(self) -> None:
        path = self._path
        try:
            local_files.prepare(path, durable=self._durable)
            self._writer: int | None = os.open(path / local_files.WRITER, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StateError(f"The local store {path} cannot be made: {error}.") from error
        try:
            self._open_environment()
        except BaseException:
            self._close_writer()
            raise
        self._identity = local_files.identity(path)

    def _open_environment(self) -> None:
        path, timed = self._path, self._timed
        with self._guarded(), self._alone():
            self._env = lmdb.open(
                str(path),
                map_size=MAP_SIZE,
                max_dbs=2 * MAX_STORES,
                sync=self._durable,
                metasync=self._durable,
                readahead=True,
                lock=True,
            )
            try:
                local_files.require_whole(path, self._size_bytes())
                self._databases = databases_of(self._env, timed)
                local_files.extend(path, self._size_bytes())
            except BaseException:
                self._env.close()
                raise

    def _close_writer(self) -> None:
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None

    def _size_bytes(self) -> int:
        """The size that its file must have."""
        last: int = self._env.info()["last_pgno"]
        return (last + 1) * int(self._env.stat()["psize"])

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Admits one writer among all processes; LMDB has a lock, too, but waits for a suspended process for ever."""
        if self._writer is None:
            raise local_files.doubt(self._path, "it was closed")
        seen = _progress(self._writer)
        while not lock(self._writer, patience_s=_PATIENCE_S):
            if seen == (seen := _progress(self._writer)):
                raise local_files.doubt(
                    self._path, f"a process that writes to it has made no progress for more than {_PATIENCE_S:g} s"
                )
        try:
            yield
        finally:
            unlock(self._writer)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except lmdb.Error as error:
            raise _unreadable(self._path, error) from error


class LocalTransaction:
    """Changes of a local store that take effect together or not at all; reads through it see them.

    There is one writer at a time, among all processes; reads through the store see the last commit.
    """

    def __init__(self, path: Path, begin: Callable[[], _Transaction], writer: int | None, databases: Databases) -> None:
        self._path, self._begin, self._writer, self._databases = path, begin, writer, databases
        self._txn = begin()
        self.committed = False

    def version(self) -> StateVersion:
        """The version of the last commit."""
        return version_in(self._txn, self._databases)

    def require(self, version: StateVersion) -> None:
        """Raises `StateError` if the store is at another state."""
        _require(self._path, self.version(), version)

    def reader(self, store: str) -> LocalReader:
        """Sees what was applied so far."""
        begin = nullcontext(self._txn)
        databases = self._databases
        return LocalReader(self._path, lambda: begin, databases.entries[store], databases.times.get(store))

    def entry_count(self) -> int:
        return _entry_count(self._txn, self._databases)

    def apply(self, changes: Changes) -> None:
        """Makes changes."""
        for name, change in changes.items():
            self._apply(name, change)

    def clear(self) -> None:
        """Removes every entry."""
        for database in (*self._databases.entries.values(), *self._databases.times.values()):
            self._txn.drop(database, delete=False)

    def commit(self, version: StateVersion) -> None:
        """Makes all changes take effect.

        Args:
            version: the version that they lead to.
        """
        self._stamp(version)
        self.committed = True

    def restored(self, *, unfinished: bool) -> None:
        """A part of a changelog is applied: shows others that they wait for a process that works.

        Args:
            unfinished: keep on the disk what was applied so far, as nobody's state (`UNFINISHED`), because memory holds
                what is not committed. An `abort` does not take it back.
        """
        if self._writer is not None:
            os.utime(self._writer, ns=(now := clock.wall_ns(), now))  # the kernel's own time is coarse
        if unfinished:
            self._stamp(UNFINISHED)
            self._txn = self._begin()

    def abort(self) -> None:
        """Takes all changes back."""
        self._txn.abort()

    def _stamp(self, version: StateVersion) -> None:
        self._txn.put(_STAMP, _checked(_STAMP, msgspec.msgpack.encode(version)), db=self._databases.meta)
        self._txn.commit()

    def _apply(self, name: str, change: StoreChanges) -> None:
        self._put(name, change.entries)
        self._delete(name, [key for key, value in change.entries if value is None])
        if change.expire_before_ms is not None and name in self._databases.times:
            self._delete(name, self._expired(name, change.expire_before_ms))

    def _put(self, name: str, changed: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Puts entries in the order of their keys, which is the fastest one for a tree, with a call per database."""
        entries, times = self._databases.entries[name], self._databases.times.get(name)
        ordered = sorted(changed, key=_KEY)
        with self._txn.cursor(db=entries) as cursor:
            if times is not None:
                last, get = cursor.key() if cursor.last() else b"", self._txn.get
                index = [
                    (key[-8:] + stored, key)
                    for key, value in ordered
                    if value is not None and ((stored := _stored(key)) > last or get(stored, db=entries) is None)
                ]
                with self._txn.cursor(db=times) as by_time:
                    by_time.putmulti(sorted(index, key=_KEY))
            cursor.putmulti(_as_stored(ordered))

    def _delete(self, name: str, keys: list[bytes]) -> None:
        txn, entries, times = self._txn, self._databases.entries[name], self._databases.times.get(name)
        for key in keys:
            stored = _stored(key)
            txn.delete(stored, db=entries)
            if times is not None:
                txn.delete(key[-8:] + stored, db=times)

    def _expired(self, name: str, before_ms: int) -> list[bytes]:
        expired: list[bytes] = []
        with self._txn.cursor(db=self._databases.times[name]) as cursor:
            for index, key in cursor:
                if int.from_bytes(index[:8], "big") >= before_ms:
                    break
                expired.append(key)
        return expired


class LocalReader:
    """`StateReader` over one database.

    An error of LMDB becomes a `StateError`, and so does an entry that differs from what was written: the record that
    was being processed is not at fault.
    """

    def __init__(
        self,
        path: Path,
        begin: Callable[[], _Transactions],
        entries: _Database,
        times: _Database | None,
        *,
        is_mine: bool = True,
    ) -> None:
        """
        Args:
            path: the path of the store.
            begin: gives the transaction to read in, for each call.
            entries: the database to read.
            times: its index by time, if there is one.
            is_mine: whether this process keeps the store, and so distrusts it after an error.
        """
        self._is_mine = is_mine
        self._path = path
        self._begin = begin
        self._entries = entries
        self._times = times

    def get(self, key: bytes) -> bytes | None:
        stored = _stored(key)
        try:
            with self._begin() as txn:
                raw = txn.get(stored, db=self._entries)
        except lmdb.Error as error:
            raise self._unreadable(error) from error
        if raw is None:
            return None
        if crc32(raw, crc32(stored)) != _INTACT:
            raise self._damaged()
        return raw[:-_CHECK_BYTES] if len(key) <= LONG_KEY else raw[4 + len(key) : -_CHECK_BYTES]

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        last_prefix = None if stop is None else stop[:LONG_KEY]
        try:
            with self._begin() as txn, txn.cursor(db=self._entries) as cursor:
                if not cursor.set_range(_MARK + start[:LONG_KEY]):
                    return
                for prefix, group in groupby(cursor, key=lambda entry: entry[0][1 : 1 + LONG_KEY]):
                    if last_prefix is not None and prefix > last_prefix:
                        return
                    for key, value in sorted(self._whole(stored, raw) for stored, raw in group):
                        if key >= start and (stop is None or key < stop):
                            yield key, value
        except lmdb.Error as error:
            raise self._unreadable(error) from error

    def scan_back(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Like `scan`, the last first."""
        try:
            with self._begin() as txn, txn.cursor(db=self._entries) as cursor:
                # Entries that share the first bytes of `stop` are compared as a whole, so begin behind all of them.
                behind = None if stop is None else after_prefix(_MARK + stop[:LONG_KEY])
                is_before = behind is not None and cursor.set_range(behind)
                if not (cursor.prev() if is_before else cursor.last()):
                    return
                entries = cursor.iterprev()
                for prefix, group in groupby(entries, key=lambda entry: entry[0][1 : 1 + LONG_KEY]):
                    if prefix < start[:LONG_KEY]:
                        return
                    for key, value in sorted((self._whole(stored, raw) for stored, raw in group), reverse=True):
                        if key >= start and (stop is None or key < stop):
                            yield key, value
        except lmdb.Error as error:
            raise self._unreadable(error) from error

    def scan_time(self, start_ms: int, stop_ms: int | None) -> Iterator[tuple[bytes, bytes]]:
        if self._times is None:
            raise ValueError("this store has no times")
        try:
            with self._begin() as txn, txn.cursor(db=self._times) as cursor:
                if not cursor.set_range(start_ms.to_bytes(8, "big")):
                    return
                for index, key in cursor:
                    if stop_ms is not None and int.from_bytes(index[:8], "big") >= stop_ms:
                        return
                    stored = _stored(key)
                    found = self._whole(stored, txn.get(stored, b"", db=self._entries))
                    if found[0] != key:
                        raise self._damaged()
                    yield found
        except lmdb.Error as error:
            raise self._unreadable(error) from error

    def _whole(self, stored: bytes, raw: bytes) -> tuple[bytes, bytes]:
        """Key and value as they were written."""
        if crc32(raw, crc32(stored)) != _INTACT:
            raise self._damaged()
        if len(stored) <= len(_MARK) + LONG_KEY:
            return stored[1:], raw[:-_CHECK_BYTES]
        stop = 4 + int.from_bytes(raw[:4], "big")
        return raw[4:stop], raw[stop:-_CHECK_BYTES]

    def _unreadable(self, error: lmdb.Error) -> StateError:
        return _unreadable(self._path, error, is_mine=self._is_mine)

    def _damaged(self) -> StateError:
        if self._is_mine:
            local_files.distrust(self._path)
        return local_files.doubt(self._path, "an entry differs from what was written")


def _progress(writer: int) -> int:
    """Changes whenever whoever has the lock shows that it goes on (`LocalTransaction.restored`)."""
    return os.fstat(writer).st_mtime_ns


def size_in(txn: _Transaction, databases: Databases, store: str) -> tuple[int, int]:
    """The entries of a store, and the bytes of its pages."""
    found = [txn.stat(each) for each in (databases.entries[store], databases.times.get(store)) if each is not None]
    pages = sum(each["branch_pages"] + each["leaf_pages"] + each["overflow_pages"] for each in found)
    return found[0]["entries"], pages * found[0]["psize"]


def version_in(txn: _Transaction, databases: Databases) -> StateVersion:
    """The version that a transaction sees."""
    raw = txn.get(_STAMP, db=databases.meta)
    if raw is None:
        return EMPTY
    if crc32(raw, crc32(_STAMP)) != _INTACT:
        raise lmdb.CorruptedError("the version differs from what was written")
    return msgspec.msgpack.decode(raw[:-_CHECK_BYTES], type=StateVersion)


def _require(path: Path, found: StateVersion, wanted: StateVersion) -> None:
    if found != wanted:
        raise StateError(
            f"The local store {path} is at version {found.number}, but version {wanted.number} was read: "
            "another process has written it meanwhile.",
            hint="nothing of this attempt was kept; the batch runs again",
        )


def _entry_count(txn: _Transaction, databases: Databases) -> int:
    return sum(txn.stat(database)["entries"] for database in databases.entries.values())


def _unreadable(path: Path, error: lmdb.Error, *, is_mine: bool = True) -> StateError:
    if is_mine:
        local_files.distrust(path)
    return StateError(f"A store on the local disk cannot be read: {path}: {type(error).__name__}: {error}")


def _checked(stored: bytes, value: bytes) -> bytes:
    return value + _SUM(crc32(value, crc32(stored)))


def _as_stored(changed: Iterable[tuple[bytes, bytes | None]]) -> Iterator[tuple[bytes, bytes]]:
    """Entries that are not deleted, as they are in the database: `_stored`, `_checked`."""
    for key, value in changed:
        if value is None:
            continue
        if len(key) <= LONG_KEY:
            yield _MARK + key, value + _SUM(crc32(value, crc32(key, _MARKED)))
        else:
            stored = _stored(key)
            yield stored, _checked(stored, len(key).to_bytes(4, "big") + key + value)


def stores_of(stage: Stage) -> dict[str, bool]:
    """The stores of a stage's tasks: name -> whether the store is timed."""
    return {store.name: store.timed for store in stage.stores} | {TASK_STORE: False}


def _stored(key: bytes) -> bytes:
    if len(key) <= LONG_KEY:
        return _MARK + key
    return _MARK + key[:LONG_KEY] + hashlib.blake2b(key, digest_size=_DIGEST).digest()
