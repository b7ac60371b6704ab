"""An object store in the memory of a process, for many small questions; `tests/unit/test_object_path.py` asks S3."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from deltaworks.files import Files, Stored
from deltaworks.object_path import About, Bucket, ObjectPath, connect


class MemoryBucket:
    """A bucket, and how it is reached.

    Attributes:
        objects: what is in it.
        reads: what was read of which object, in order; None: all of it.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: list[tuple[str, int | None]] = []
        self._lock = threading.RLock()

    def root(self, key: str, local: Path) -> ObjectPath:
        """A place in it."""
        return connect(f"s3://memory/{key}", self, local)

    def bucket(self, name: str) -> Bucket:
        return self

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            self.objects[key] = data

    def put_if_absent(self, key: str, data: bytes) -> bool:
        with self._lock:
            if key in self.objects:
                return False
            self.objects[key] = data
            return True

    def upload(self, key: str, file: Path) -> None:
        self.put(key, file.read_bytes())

    def read(self, key: str) -> bytes | None:
        self.reads.append((key, None))
        return self.objects.get(key)

    def read_part(self, key: str, start: int, size: int) -> bytes | None:
        self.reads.append((key, size))
        found = self.objects.get(key)
        return None if found is None else found[start : start + size]

    def about(self, key: str) -> About | None:
        found = self.objects.get(key)
        return None if found is None else About(len(found), 0.0)

    def children(self, prefix: str) -> tuple[list[str], list[str]]:
        below = [key.removeprefix(prefix) for key, _ in self.keys(prefix)]
        return sorted({name.split("/")[0] for name in below if "/" in name}), [n for n in below if n and "/" not in n]

    def end_uploads(self, prefix: str) -> int:
        return 0

    def keeps_versions(self) -> bool:
        return False

    def keys(self, prefix: str) -> Iterator[tuple[str, About]]:
        with self._lock:
            found = [
                (key, About(len(self.objects[key]), 0.0)) for key in sorted(self.objects) if key.startswith(prefix)
            ]
        yield from found

    def copy(self, key: str, to: str) -> bool:
        with self._lock:
            if key not in self.objects:
                return False
            self.objects[to] = self.objects[key]
            return True

    def delete(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                self.objects.pop(key, None)

    def files(self, prefix: str) -> Files:
        return _Files(self, f"{prefix}/")

    def options(self) -> dict[str, str]:
        raise NotImplementedError

    def arrow(self) -> dict[str, Any]:
        raise NotImplementedError

    def hadoop(self) -> dict[str, str]:
        raise NotImplementedError


class _Files:
    """`files.Files` below a prefix."""

    def __init__(self, bucket: MemoryBucket, prefix: str) -> None:
        self._bucket, self._prefix = bucket, prefix

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._bucket.put_if_absent(self._prefix + name, data)

    def replace(self, name: str, data: bytes, version: str) -> bool:
        found = self.get(name)
        if found is None or found.version != version:
            return False
        self._bucket.put(self._prefix + name, data)
        return True

    def get(self, name: str) -> Stored | None:
        data = self._bucket.read(self._prefix + name)
        return None if data is None else Stored(data, hashlib.sha256(data).hexdigest())

    def names(self, prefix: str = "") -> list[str]:
        return [key.removeprefix(self._prefix) for key, _ in self._bucket.keys(self._prefix + prefix)]

    def delete(self, name: str) -> None:
        self._bucket.delete([self._prefix + name])
