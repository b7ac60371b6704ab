"""The tests of tables run in a folder, and with DELTAWORKS_TESTS_TABLES=s3 in an object store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaworks import faults
from deltaworks.object_path import ObjectPath, access_of, connect
from tests.support import object_stores

IN_STORE = os.environ.get("DELTAWORKS_TESTS_TABLES") == "s3"


@pytest.fixture(scope="module")
def store() -> Iterator[None]:
    """A server of S3; the environment tells delta-rs of it."""
    with object_stores.seaweed() as endpoint, pytest.MonkeyPatch.context() as patch:
        for name, value in object_stores.access(endpoint).bucket(object_stores.BUCKET).options().items():
            patch.setenv(name, value)  # for tests that open tables with delta-rs
        yield


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    """What a test has armed ends with it."""
    yield
    faults.arm(None)


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    if not IN_STORE:
        return tmp_path
    request.getfixturevalue("store")
    return connect(f"s3://{object_stores.BUCKET}/{tmp_path.name}", object_stores.access(), tmp_path)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder of this machine, whether tables are in it or not."""
    return access_of(tmp_path)[1] if isinstance(tmp_path, ObjectPath) else tmp_path


@pytest.fixture
def in_store(here: Path, store: None) -> ObjectPath:
    """An empty place in an object store, for tests that always use one."""
    return connect(f"s3://{object_stores.BUCKET}/{here.name}", object_stores.access(), here / "local")
