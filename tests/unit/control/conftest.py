"""An object store for the tests of what lies in one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaworks.object_path import ObjectPath, connect
from tests.support import object_stores
from tests.support.compiled_once import compiled_once as compiled_once


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A server of S3."""
    with object_stores.moto() as endpoint:
        yield endpoint


@pytest.fixture
def in_store(tmp_path: Path, store: str) -> ObjectPath:
    """An empty place in the store."""
    return connect(f"s3://{object_stores.BUCKET}/{tmp_path.name}", object_stores.access(store), tmp_path / "local")


@pytest.fixture(autouse=True)
def archives_take_what_is_compiled(compiled_once: None) -> None:
    """Most tests of archives make some of the whole package."""
