"""The stores of one task on the executor's disk: LMDB, readable by every Python worker that may get the task.

It holds what committed batches have left, and a `StateVersion` that says up to which one. Whoever changes it names the
version that he has seen; if another one is there, nothing is changed. For a stream it is a cache of what Spark's
checkpoint holds, thrown away at the slightest doubt: another boot of the machine, another format, a page or a value
that is not what was written (`local_files`). When it is written, and what from, is in `recovery.py`. A replay keeps its
state in it (`replay/`): then each commit waits for the disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import lmdb
import msgspec

from deltaworks.errors import StateError
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.task import TASK_STORE
from deltaworks.runtime.state import local_files
from deltaworks.runtime.state.local_files import discard
from deltaworks.topology.stages import Stage

__all__ = ["EMPTY", "Changes", "LocalReader", "LocalStore", "LocalTransaction", "StateVersion", "discard", "stores_of"]

_MAP_SIZE = 1 << 38
_MAX_STORES = 256
_LONG_KEY = 460
"""LMDB keys end at 511 bytes; longer ones are stored by prefix and digest, with the whole key before the value."""
_DIGEST = 24
_MARK = b"."
"""Before every key, because LMDB has no empty key."""
_META = b"!meta"
_STAMP = b"version"
_CHECK_BYTES = 4
"""After every value: the checksum of key and value, so that the checksum of all three is always the same."""
_INTACT = 0x2144DF1C

if TYPE_CHECKING:
    from lmdb import Transaction, _Database

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
"""Of a store to which nothing was ever committed."""


@dataclass(frozen=True)
class _Databases:
    """Of one environment; entries and indexes by time by store."""

    meta: _Database
    entries: Mapping[str, _Database]
    times: Mapping[str, _Database]


class LocalStore:
    """One LMDB environment: per store a database, per timed store also an index by time.

    Whatever LMDB or a checksum says against it becomes a `StateError`, after which nobody believes it any more; for the
    owner of a copy to `discard` it, and to fill it again.
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
        """Opens what can be filled again: a new one in the place of one that cannot be trusted."""
        try:
            return cls(path, timed)
        except StateError:
            discard(path)
        return cls(path, timed)

    def version(self) -> StateVersion:
        """Of the last commit."""
        with self._guarded(), self._env.begin() as txn:
            return _version(txn, self._databases)

    def reader(self, store: str) -> LocalReader:
        """Every call sees the last commit. Good until the store is opened again (`discard`, `refresh`)."""
        databases = self._databases
        return LocalReader(self._path, self._env.begin, databases.entries[store], databases.times.get(store))

    @contextmanager
    def transaction(self) -> Iterator[LocalTransaction]:
        """Waits for whoever writes, in any process. Nothing of it happens unless it is committed."""
        with self._guarded():
            with self._env.begin(write=True) as txn:
                transaction = LocalTransaction(self._path, txn, self._databases)
                yield transaction
                if not transaction.committed:
                    txn.abort()
            if transaction.committed:
                local_files.extend(self._path, self._size_bytes())

    def commit(self, changes: Changes, version: StateVersion, previous: StateVersion | None) -> None:
        """Applies changes of one batch in one transaction.

        Args:
            changes: What it changed.
            version: Of the state that they lead to.
            previous: Of the state that they were made from; None: of an empty store.

        Raises:
            StateError: it is at another state; somebody else has written it meanwhile.
        """
        with self.transaction() as transaction:
            transaction.require(previous or EMPTY)
            transaction.apply(changes)
            transaction.commit(version)

    def require(self, version: StateVersion) -> None:
        """Raises `StateError` if the store is at another state."""
        _require(self._path, self.version(), version)

    def rebuild(self, history: Iterator[Changes], version: StateVersion, previous: StateVersion | None) -> None:
        """Replaces everything by the changelog, oldest segment first; `previous` as for `commit`."""
        with self.transaction() as transaction:
            transaction.require(previous or EMPTY)
            transaction.clear()
            for changes in history:
                transaction.apply(changes)
            transaction.commit(version)

    def entry_count(self) -> int:
        with self._guarded(), self._env.begin() as txn:
            return _entry_count(txn, self._databases)

    def refresh(self) -> bool:
        """Opens what is in its folder now, if another process has thrown away what was there.

        Returns:
            Whether it did, so that what has read it before has to be made anew.

        Raises:
            StateError: it cannot be trusted.
        """
        if local_files.identity(self._path) == self._identity:
            if not local_files.is_trusted(self._path):
                raise local_files.doubt(self._path, "something was wrong with it before")
            return False
        self.close()
        self._open()
        return True

    def discard(self) -> None:
        """Throws everything away, and opens a new one in its place."""
        self.close()
        discard(self._path)
        self._open()

    def close(self) -> None:
        self._env.close()

    def _open(self) -> None:
        path, timed = self._path, self._timed
        try:
            local_files.prepare(path, durable=self._durable)
        except OSError as error:
            raise StateError(f"The local store {path} cannot be made: {error}.") from error
        with self._guarded():
            self._env = lmdb.open(
                str(path),
                map_size=_MAP_SIZE,
                max_dbs=2 * _MAX_STORES,
                sync=self._durable,
                metasync=self._durable,
                readahead=True,
                lock=True,
            )
            try:
                local_files.require_whole(path, self._size_bytes())
                self._env.reader_check()  # who was killed while reading keeps old pages from being used again
                meta = self._env.open_db(_META)
                entries = {name: self._env.open_db(b"e:" + name.encode()) for name in timed}
                times = {name: self._env.open_db(b"t:" + name.encode()) for name in timed if timed[name]}
                local_files.extend(path, self._size_bytes())
            except BaseException:
                self._env.close()
                raise
        self._databases = _Databases(meta, entries, times)
        self._identity = local_files.identity(path)

    def _size_bytes(self) -> int:
        """How large its file has to be."""
        last: int = self._env.info()["last_pgno"]
        return (last + 1) * int(self._env.stat()["psize"])

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except lmdb.Error as error:
            raise _unreadable(self._path, error) from error


class LocalTransaction:
    """Changes of a local store that count together or not at all; what reads through it sees them.

    There is one writer at a time, among all processes; those who read through the store see the last commit.
    """

    def __init__(self, path: Path, txn: _Transaction, databases: _Databases) -> None:
        self._path, self._txn, self._databases = path, txn, databases
        self.committed = False

    def version(self) -> StateVersion:
        """Of the last commit."""
        return _version(self._txn, self._databases)

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
        """All changes count from now on.

        Args:
            version: of the state that they lead to.
        """
        self._txn.put(_STAMP, _checked(_STAMP, msgspec.msgpack.encode(version)), db=self._databases.meta)
        self._txn.commit()
        self.committed = True

    def _apply(self, name: str, change: StoreChanges) -> None:
        for key, value in change.entries:
            self._put(name, key, value)
        if change.expire_before_ms is not None and name in self._databases.times:
            for key in self._expired(name, change.expire_before_ms):
                self._put(name, key, None)

    def _put(self, name: str, key: bytes, value: bytes | None) -> None:
        txn, entries, times = self._txn, self._databases.entries[name], self._databases.times.get(name)
        stored = _stored(key)
        is_new = times is not None and txn.get(stored, db=entries) is None
        if value is None:
            txn.delete(stored, db=entries)
        else:
            whole = value if len(key) <= _LONG_KEY else len(key).to_bytes(4, "big") + key + value
            txn.put(stored, _checked(stored, whole), db=entries)
        if times is not None and (value is None) != is_new:
            index = key[-8:] + stored
            if value is None:
                txn.delete(index, db=times)
            else:
                txn.put(index, key, db=times)

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

    What LMDB raises becomes a `StateError`, and so does what is not as it was written: it is no fault of the record
    that asked.
    """

    def __init__(
        self, path: Path, begin: Callable[[], _Transactions], entries: _Database, times: _Database | None
    ) -> None:
        """
        Args:
            path: of the store.
            begin: gives the transaction to read in, for each call.
            entries: what to read.
            times: its index by time, if it has one.
        """
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
            raise _unreadable(self._path, error) from error
        if raw is None:
            return None
        if crc32(raw, crc32(stored)) != _INTACT:
            raise self._damaged()
        return raw[:-_CHECK_BYTES] if len(key) <= _LONG_KEY else raw[4 + len(key) : -_CHECK_BYTES]

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        last_prefix = None if stop is None else stop[:_LONG_KEY]
        try:
            with self._begin() as txn, txn.cursor(db=self._entries) as cursor:
                if not cursor.set_range(_MARK + start[:_LONG_KEY]):
                    return
                for prefix, group in groupby(cursor, key=lambda entry: entry[0][1 : 1 + _LONG_KEY]):
                    if last_prefix is not None and prefix > last_prefix:
                        return
                    for key, value in sorted(self._whole(stored, raw) for stored, raw in group):
                        if key >= start and (stop is None or key < stop):
                            yield key, value
        except lmdb.Error as error:
            raise _unreadable(self._path, error) from error

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
            raise _unreadable(self._path, error) from error

    def _whole(self, stored: bytes, raw: bytes) -> tuple[bytes, bytes]:
        """Key and value as they were put."""
        if crc32(raw, crc32(stored)) != _INTACT:
            raise self._damaged()
        if len(stored) <= len(_MARK) + _LONG_KEY:
            return stored[1:], raw[:-_CHECK_BYTES]
        stop = 4 + int.from_bytes(raw[:4], "big")
        return raw[4:stop], raw[stop:-_CHECK_BYTES]

    def _damaged(self) -> StateError:
        local_files.distrust(self._path)
        return local_files.doubt(self._path, "an entry is not as it was written")


def _version(txn: _Transaction, databases: _Databases) -> StateVersion:
    raw = txn.get(_STAMP, db=databases.meta)
    if raw is None:
        return EMPTY
    if crc32(raw, crc32(_STAMP)) != _INTACT:
        raise lmdb.CorruptedError("the version is not as it was written")
    return msgspec.msgpack.decode(raw[:-_CHECK_BYTES], type=StateVersion)


def _require(path: Path, found: StateVersion, wanted: StateVersion) -> None:
    if found != wanted:
        raise StateError(
            f"The local store {path} is at version {found.number}, and version {wanted.number} of it was read: "
            "another process has written it meanwhile.",
            hint="nothing of this attempt was kept; the batch is run again",
        )


def _entry_count(txn: _Transaction, databases: _Databases) -> int:
    return sum(txn.stat(database)["entries"] for database in databases.entries.values())


def _unreadable(path: Path, error: lmdb.Error) -> StateError:
    local_files.distrust(path)
    return StateError(f"A store on the local disk cannot be read: {path}: {type(error).__name__}: {error}")


def _checked(stored: bytes, value: bytes) -> bytes:
    return value + crc32(value, crc32(stored)).to_bytes(_CHECK_BYTES, "little")


def stores_of(stage: Stage) -> dict[str, bool]:
    """The stores that a task of a stage keeps: name -> whether it is timed."""
    return {store.name: store.timed for store in stage.stores} | {TASK_STORE: False}


def _stored(key: bytes) -> bytes:
    if len(key) <= _LONG_KEY:
        return _MARK + key
    return _MARK + key[:_LONG_KEY] + hashlib.blake2b(key, digest_size=_DIGEST).digest()
