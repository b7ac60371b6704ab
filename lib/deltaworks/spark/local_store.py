"""The stores of one task on the executor's disk: LMDB, readable by every Python worker that may get the task.

It is a cache of what Spark's checkpoint holds and may vanish at any time. It carries a `Stamp` that says which
committed version it holds, and the before-images of the last batch, so that a failed attempt can be undone.
The protocol that compares stamps is in `protocol.py`.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import msgspec

from deltaworks.errors import StateError
from deltaworks.kernel.stores.state import StoreChanges

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

Changes = Mapping[str, StoreChanges]
_Image = tuple[str, bytes, bytes | None]
"""Store, key, value before."""


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """Identity of one committed state of a task.

    The nonce is random: a failed attempt may have used the same version number, never the same nonce.
    """

    version: int
    nonce: bytes


class _Header(msgspec.Struct, frozen=True, array_like=True):
    stamp: Stamp
    previous: Stamp | None
    """The state that the before-images lead back to."""


class LocalStore:
    """One LMDB environment: per store a database, per timed store also an index by time."""

    def __init__(self, path: Path, timed: Mapping[str, bool]) -> None:
        """Opens or creates the environment.

        Args:
            path: Directory of this task.
            timed: Store name -> the last 8 bytes of its keys are a time.
        """
        self._path = path
        self._timed = dict(timed)
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
        self._entries: dict[str, _Database] = {}
        self._times: dict[str, _Database] = {}
        self._meta = self._env.open_db(_META)
        self._undo = self._env.open_db(_UNDO)
        for name, is_timed in self._timed.items():
            self._entries[name] = self._env.open_db(b"e:" + name.encode())
            if is_timed:
                self._times[name] = self._env.open_db(b"t:" + name.encode())

    def header(self) -> _Header | None:
        with self._env.begin(db=self._meta) as txn:
            raw = txn.get(_STAMP)
        return msgspec.msgpack.decode(raw, type=_Header) if raw else None

    def reader(self, store: str) -> LocalReader:
        return LocalReader(self._env, self._entries[store], self._times.get(store))

    def commit(self, changes: Changes, stamp: Stamp, previous: Stamp | None) -> None:
        """Applies changes of one batch in one transaction and keeps their before-images.

        Where records go in a circle, a batch has several commits with the same stamp; they are undone together.
        """
        images: list[_Image] = []
        header = self.header()
        with self._env.begin(write=True) as txn:
            if header is not None and header.stamp == stamp:
                images = msgspec.msgpack.decode(txn.get(b"images", b"", db=self._undo), type=list[_Image])
            for name, change in changes.items():
                self._apply(txn, name, change, images)
            txn.drop(self._undo, delete=False)
            if previous is not None:
                txn.put(b"images", msgspec.msgpack.encode(images), db=self._undo)
            txn.put(_STAMP, msgspec.msgpack.encode(_Header(stamp, previous)), db=self._meta)

    def undo(self) -> None:
        """Goes back to the state before the last `commit`."""
        header = self.header()
        if header is None or header.previous is None:
            raise ValueError(f"nothing to undo in {self._path}")
        with self._env.begin(write=True) as txn:
            raw = txn.get(b"images", b"", db=self._undo)
            for name, key, value in reversed(msgspec.msgpack.decode(raw, type=list[_Image])):
                self._put(txn, name, key, value, None)
            txn.drop(self._undo, delete=False)
            txn.put(_STAMP, msgspec.msgpack.encode(_Header(header.previous, None)), db=self._meta)

    def rebuild(self, history: Iterator[Changes], stamp: Stamp) -> None:
        """Replaces everything by the changelog, oldest segment first."""
        with self._env.begin(write=True) as txn:
            for name in self._timed:
                txn.drop(self._entries[name], delete=False)
                if name in self._times:
                    txn.drop(self._times[name], delete=False)
            txn.drop(self._undo, delete=False)
            for changes in history:
                for name, change in changes.items():
                    self._apply(txn, name, change, None)
            txn.put(_STAMP, msgspec.msgpack.encode(_Header(stamp, None)), db=self._meta)

    def entry_count(self) -> int:
        with self._env.begin() as txn:
            return sum(txn.stat(db)["entries"] for db in self._entries.values())

    def close(self) -> None:
        self._env.close()

    def _apply(self, txn: _Transaction, name: str, change: StoreChanges, images: list[_Image] | None) -> None:
        for key, value in change.entries:
            self._put(txn, name, key, value, images)
        if change.expire_before_ms is not None and name in self._times:
            for key in self._expired(txn, name, change.expire_before_ms):
                self._put(txn, name, key, None, images)

    def _put(self, txn: _Transaction, name: str, key: bytes, value: bytes | None, images: list[_Image] | None) -> None:
        entries, stored = self._entries[name], _stored(key)
        old = txn.get(stored, db=entries)
        if images is not None:
            images.append((name, key, None if old is None else _value(key, old)))
        if value is not None:
            txn.put(stored, value if len(key) <= _LONG_KEY else len(key).to_bytes(4, "big") + key + value, db=entries)
        elif old is not None:
            txn.delete(stored, db=entries)
        if (value is None) != (old is None) and name in self._times:
            index = key[-8:] + stored
            if value is None:
                txn.delete(index, db=self._times[name])
            else:
                txn.put(index, key, db=self._times[name])

    def _expired(self, txn: _Transaction, name: str, before_ms: int) -> list[bytes]:
        expired: list[bytes] = []
        with txn.cursor(db=self._times[name]) as cursor:
            for index, key in cursor:
                if int.from_bytes(index[:8], "big") >= before_ms:
                    break
                expired.append(key)
        return expired


class LocalReader:
    """`StateReader` over one database; every call sees the last commit.

    What LMDB raises becomes a `StateError`: it is no fault of the record that asked.
    """

    def __init__(self, env: lmdb.Environment, entries: _Database, times: _Database | None) -> None:
        self._env = env
        self._entries = entries
        self._times = times

    def get(self, key: bytes) -> bytes | None:
        try:
            with self._env.begin() as txn:
                raw = txn.get(_stored(key), db=self._entries)
        except lmdb.Error as error:
            raise _unreadable(error) from error
        return None if raw is None else _value(key, raw)

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        last_prefix = None if stop is None else stop[:_LONG_KEY]
        try:
            with self._env.begin(db=self._entries) as txn, txn.cursor() as cursor:
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
            with self._env.begin(db=self._times) as txn, txn.cursor() as cursor:
                if not cursor.set_range(start_ms.to_bytes(8, "big")):
                    return
                for index, key in cursor:
                    if stop_ms is not None and int.from_bytes(index[:8], "big") >= stop_ms:
                        return
                    yield key, _value(key, txn.get(_stored(key), b"", db=self._entries))
        except lmdb.Error as error:
            raise _unreadable(error) from error


def _unreadable(error: lmdb.Error) -> StateError:
    return StateError(f"a store on the local disk cannot be read: {type(error).__name__}: {error}")


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
