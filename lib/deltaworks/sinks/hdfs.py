"""Files in HDFS through WebHDFS, by fsspec, which belongs to no extra.

A file is written under a hidden name and renamed, which HDFS refuses if there is one of that name. Whoever is killed in
between leaves the hidden file behind; readers of such folders skip it.
"""

from __future__ import annotations

import hashlib
import uuid
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult

from deltaworks.errors import ConfigurationError
from deltaworks.files import Stored

PORT = 9870
_TIMEOUT_S = (10.0, 60.0)
"""For a connection, and for each answer: fsspec would wait for ever."""


class HdfsFiles:
    """The folder of a sink; as much of `Files` as a sink needs.

    Args:
        what: names the address in errors.
        address: `webhdfs://user@host:port/folder`.
    """

    def __init__(self, what: str, address: SplitResult) -> None:
        try:
            webhdfs = import_module("fsspec.implementations.webhdfs")
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"{what} needs the package '{error.name}', which is not installed here.",
                hint="pip install fsspec requests, also where tasks run",
            ) from None
        self._root = address.path.rstrip("/")
        self._hdfs: Any = webhdfs.WebHDFS(
            host=address.hostname, port=address.port or PORT, user=address.username, skip_instance_cache=True
        )
        session = self._hdfs.session
        session.request = partial(session.request, timeout=_TIMEOUT_S)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Writes a file that does not exist yet; False if it exists, and nothing was done."""
        target = f"{self._root}/{name}"
        if self._is_there(target):
            return False
        folder, _, file = target.rpartition("/")
        hidden = f"{folder}/.{file}.{uuid.uuid4().hex}"
        self._hdfs.makedirs(folder, exist_ok=True)
        self._hdfs.pipe_file(hidden, data)
        self._hdfs.mv(hidden, target)
        if not self._is_there(hidden):
            return True
        self._hdfs.rm(hidden)
        return False

    def _is_there(self, path: str) -> bool:
        """Whether there is such a file; fsspec's `exists` says no whenever it gets no answer."""
        try:
            self._hdfs.info(path)
        except FileNotFoundError:
            return False
        return True

    def get(self, name: str) -> Stored | None:
        """The content of a file; None if it does not exist."""
        try:
            data: bytes = self._hdfs.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        return Stored(data, hashlib.sha256(data).hexdigest())
