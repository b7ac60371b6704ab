"""The stores of one task on the executor's disk: LMDB, readable by every Python worker that may get the task.

It carries a `Stamp` that says which committed version it holds, and the before-images of the last batch, so that a
failed attempt can be undone. For a stream it is a cache of what Spark's checkpoint holds, and may vanish at any time;
the protocol that compares stamps is in `protocol.py`. A replay keeps its state in it (`replay/`).
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import msgspec

from deltaworks.errors import StateError
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.task import TASK_STORE
from deltaworks.topology.stages import Stage

_MAP_SIZE = 1 << 38
_MAX_STORES = 256
_LONG_KEY = 460
"""LMDB keys end at 511 bytes; longer ones are stored by prefix and digest, with the whole key before the value."""
_DIGEST = 24
_MARK = b"."
"""Before every key, because LMDB has no empty key."""
_UNDO = b"!undo"
_META = b"!meta"
_STAMP = b"stamp"

if TYPE_CHECKING:
    from lmdb import Transaction, _Database

    _Transaction = Transaction[bytes]
    _Transactions = AbstractContextManager[_Transaction]

Changes = Mapping[str, StoreChanges]
_Image = tuple[str, bytes, bytes | None]
"""Store, key, value before."""


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """Identity of one committed state of a task.

    The nonce is random: a failed attempt may have used the same version number, never the same nonce.
    """

    version: int
    nonce: bytes


class Header(msgspec.Struct, frozen=True, array_like=True):
    """What a local store holds."""

    stamp: Stamp
    previous: Stamp | None
    """The state that the before-images lead back to."""


@dataclass(frozen=True)
class _Databases:
    """Of one environment; entries and indexes by time by store."""

    meta: _Database
    undo: _Database
    entries: Mapping[str, _Database]
    times: Mapping[str, _Database]


class LocalStore:
    """One LMDB environment: per store a database, per timed store also an index by time."""

    def __init__(self, path: Path, timed: Mapping[str, bool]) -> None:
        """Opens or creates the environment.

        Args:
            path: Directory of this task.
            timed: Store name -> the last 8 bytes of its keys are a time.
        """
        self._path = path
        path.mkdir(parents=True, exist_ok=True)
        self._env = lmdb.open(
            str(path),
            map_size=_MAP_SIZE,
            max_dbs=2 * _MAX_STORES,
            sync=False,
            metasync=False,
            readahead=True,
            lock=True,
        )
        meta, undo = self._env.open_db(_META), self._env.open_db(_UNDO)
        entries = {name: self._env.open_db(b"e:" + name.encode()) for name in timed}
        times = {name: self._env.open_db(b"t:" + name.encode()) for name, is_timed in timed.items() if is_timed}
        self._databases = _Databases(meta, undo, entries, times)

    def header(self) -> Header | None:
        with self._env.begin() as txn:
            return _header(txn, self._databases)

    def reader(self, store: str) -> LocalReader:
        """Every call sees the last commit."""
        return LocalReader(self._env.begin, self._databases.entries[store], self._databases.times.get(store))

    @contextmanager
    def transaction(self) -> Iterator[LocalTransaction]:
        """Waits for whoever writes, in any process. Nothing of it happens unless it is committed."""
        with self._env.begin(write=True) as txn:
            transaction = LocalTransaction(self._path, txn, self._databases)
            yield transaction
            if not transaction.committed:
                txn.abort()

    def commit(self, changes: Changes, stamp: Stamp, previous: Stamp | None) -> None:
        """Applies changes of one batch in one transaction and keeps their before-images.

        Where records go in a circle, a batch has several commits with the same stamp; they are undone together.
        """
        with self.transaction() as transaction:
            header = transaction.header()
            if header is None or header.stamp != stamp:
                transaction.forget_images()
            transaction.apply(changes, keep_images=previous is not None)
            transaction.commit(stamp, previous)

    def undo(self) -> None:
        """Goes back to the state before the last `commit`."""
        with self.transaction() as transaction:
            transaction.commit(transaction.undo(), None)

    def rebuild(self, history: Iterator[Changes], stamp: Stamp) -> None:
        """Replaces everything by the changelog, oldest segment first."""
        with self.transaction() as transaction:
            transaction.clear()
            for changes in history:
                transaction.apply(changes)
            transaction.commit(stamp, None)

    def entry_count(self) -> int:
        with self._env.begin() as txn:
            return _entry_count(txn, self._databases)

    def close(self) -> None:
        self._env.close()


class LocalTransaction:
    """Changes of a local store that count together or not at all; what reads through it sees them.

    There is one writer at a time, among all processes; those who read through the store see the last commit.
    """

    def __init__(self, path: Path, txn: _Transaction, databases: _Databases) -> None:
        self._path, self._txn, self._databases = path, txn, databases
        self.committed = False

    def header(self) -> Header | None:
        return _header(self._txn, self._databases)

    def reader(self, store: str) -> LocalReader:
        """Sees what was applied so far."""
        begin = nullcontext(self._txn)
        return LocalReader(lambda: begin, self._databases.entries[store], self._databases.times.get(store))

    def entry_count(self) -> int:
        return _entry_count(self._txn, self._databases)

    def apply(self, changes: Changes, *, keep_images: bool = False) -> None:
        """Makes changes.

        Args:
            changes: of one commit of a task.
            keep_images: what was there before is kept, so that `undo` leads back.
        """
        images: list[_Image] | None = [] if keep_images else None
        for name, change in changes.items():
            self._apply(name, change, images)
        if images:
            number = self._txn.stat(self._databases.undo)["entries"]
            self._txn.put(number.to_bytes(8, "big"), msgspec.msgpack.encode(images), db=self._databases.undo)

    def forget_images(self) -> None:
        """What was applied so far will not be undone."""
        self._txn.drop(self._databases.undo, delete=False)

    def undo(self) -> Stamp:
        """Takes back what has before-images.

        Returns:
            The stamp of the state before.

        Raises:
            ValueError: there are none.
        """
        header = self.header()
        if header is None or header.previous is None:
            raise ValueError(f"nothing to undo in {self._path}")
        with self._txn.cursor(db=self._databases.undo) as cursor:
            kept = [msgspec.msgpack.decode(raw, type=list[_Image]) for raw in cursor.iterprev(keys=False, values=True)]
        for images in kept:
            for name, key, value in reversed(images):
                self._put(name, key, value, None)
        self.forget_images()
        return header.previous

    def clear(self) -> None:
        """Removes every entry."""
        for database in (*self._databases.entries.values(), *self._databases.times.values(), self._databases.undo):
            self._txn.drop(database, delete=False)

    def commit(self, stamp: Stamp, previous: Stamp | None) -> None:
        """Makes the changes durable.

        Args:
            stamp: of the state that they lead to.
            previous: of the state that their before-images lead back to.
        """
        self._txn.put(_STAMP, msgspec.msgpack.encode(Header(stamp, previous)), db=self._databases.meta)
        self._txn.commit()
        self.committed = True

    def _apply(self, name: str, change: StoreChanges, images: list[_Image] | None) -> None:
        for key, value in change.entries:
            self._put(name, key, value, images)
        if change.expire_before_ms is not None and name in self._databases.times:
            for key in self._expired(name, change.expire_before_ms):
                self._put(name, key, None, images)

    def _put(self, name: str, key: bytes, value: bytes | None, images: list[_Image] | None) -> None:
        txn, entries, times = self._txn, self._databases.entries[name], self._databases.times.get(name)
        stored = _stored(key)
        if value is not None and len(key) > _LONG_KEY:
            value = len(key).to_bytes(4, "big") + key + value
        if images is None and times is None:  # nobody has to know what was there
            if value is None:
                txn.delete(stored, db=entries)
            else:
                txn.put(stored, value, db=entries)
            return
        old = txn.get(stored, db=entries)
        if images is not None:
            images.append((name, key, None if old is None else _value(key, old)))
        if value is not None:
            txn.put(stored, value, db=entries)
        elif old is not None:
            txn.delete(stored, db=entries)
        if times is not None and (value is None) != (old is None):
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

    What LMDB raises becomes a `StateError`: it is no fault of the record that asked.
    """

    def __init__(self, begin: Callable[[], _Transactions], entries: _Database, times: _Database | None) -> None:
        """
        Args:
            begin: gives the transaction to read in, for each call.
            entries: what to read.
            times: its index by time, if it has one.
        """
        self._begin = begin
        self._entries = entries
        self._times = times

    def get(self, key: bytes) -> bytes | None:
        try:
            with self._begin() as txn:
                raw = txn.get(_stored(key), db=self._entries)
        except lmdb.Error as error:
            raise _unreadable(error) from error
        return None if raw is None else _value(key, raw)

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        last_prefix = None if stop is None else stop[:_LONG_KEY]
        try:
            with self._begin() as txn, txn.cursor(db=self._entries) as cursor:
                if not cursor.set_range(_MARK + start[:_LONG_KEY]):
                    return
                for prefix, group in groupby(cursor, key=lambda entry: entry[0][1 : 1 + _LONG_KEY]):
                    if last_prefix is not None and prefix > last_prefix:
                        return
                    for key, value in sorted(_whole(stored, raw) for stored, raw in group):
                        if key >= start and (stop is None or key < stop):
                            yield key, value
        except lmdb.Error as error:
            raise _unreadable(error) from error

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
                    yield key, _value(key, txn.get(_stored(key), b"", db=self._entries))
        except lmdb.Error as error:
            raise _unreadable(error) from error


def _header(txn: _Transaction, databases: _Databases) -> Header | None:
    raw = txn.get(_STAMP, db=databases.meta)
    return msgspec.msgpack.decode(raw, type=Header) if raw else None


def _entry_count(txn: _Transaction, databases: _Databases) -> int:
    return sum(txn.stat(database)["entries"] for database in databases.entries.values())


def _unreadable(error: lmdb.Error) -> StateError:
    return StateError(f"a store on the local disk cannot be read: {type(error).__name__}: {error}")


def stores_of(stage: Stage) -> dict[str, bool]:
    """The stores that a task of a stage keeps: name -> whether it is timed."""
    return {store.name: store.timed for store in stage.stores} | {TASK_STORE: False}


def discard(path: Path) -> None:
    """Removes the local copy of one task."""
    shutil.rmtree(path, ignore_errors=True)


def _stored(key: bytes) -> bytes:
    if len(key) <= _LONG_KEY:
        return _MARK + key
    return _MARK + key[:_LONG_KEY] + hashlib.blake2b(key, digest_size=_DIGEST).digest()


def _value(key: bytes, raw: bytes) -> bytes:
    return raw if len(key) <= _LONG_KEY else raw[4 + len(key) :]


def _whole(stored: bytes, raw: bytes) -> tuple[bytes, bytes]:
    if len(stored) <= 1 + _LONG_KEY:
        return stored[1:], raw
    size = int.from_bytes(raw[:4], "big")
    return raw[4 : 4 + size], raw[4 + size :]
