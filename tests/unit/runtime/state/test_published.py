"""What a task publishes of its newest batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.errors import StoreUnavailableError
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state import changelog, published
from deltaworks.runtime.state.local_store import StateVersion

VERSIONS = StateVersion(3, b"before"), StateVersion(4, b"after")


def test_changes_are_read_as_they_were_written(tmp_path: Path) -> None:
    value = bytes(3 << 20)
    changes = {
        "rows": StoreChanges([(b"a", value), (b"b", None), (b"c", value)]),
        "windows": StoreChanges([(b"w" + bytes(8), b"x")], expire_before_ms=0),
    }
    published.write(tmp_path, 7, "digest", VERSIONS, changelog.encode(changes))

    found = published.read(tmp_path)

    assert found is not None
    head = found.head
    assert (head.batch, head.intent, (head.base, head.version)) == (7, "digest", VERSIONS)
    assert len(head.chunks) > 1
    assert found.changes() == changes


def test_a_task_without_changes_publishes_which_batch_its_store_is_of(tmp_path: Path) -> None:
    published.write(tmp_path, 7, "", VERSIONS)

    found = published.read(tmp_path)

    assert found is not None and found.changes() == {}


def test_nothing_or_another_format_is_as_if_nothing_was_published(tmp_path: Path) -> None:
    assert published.read(tmp_path) is None
    published.write(tmp_path, 7, "", VERSIONS)
    path = tmp_path / published.NAME
    data = bytearray(path.read_bytes())
    data[4] = published.FORMAT + 1
    path.write_bytes(data)
    assert published.read(tmp_path) is None


@pytest.mark.parametrize("at", [0, 5, -1])
def test_a_byte_that_differs_is_seen(tmp_path: Path, at: int) -> None:
    published.write(tmp_path, 7, "digest", VERSIONS, changelog.encode({"rows": StoreChanges([(b"a", b"b")])}))
    path = tmp_path / published.NAME
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreUnavailableError, match="damaged"):
        published.read(tmp_path)


def test_a_file_that_was_cut_off_is_seen(tmp_path: Path) -> None:
    published.write(tmp_path, 7, "digest", VERSIONS)
    path = tmp_path / published.NAME
    for size in (0, 5, len(path.read_bytes()) - 1):
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(StoreUnavailableError, match="damaged"):
            published.read(tmp_path)
        published.write(tmp_path, 7, "digest", VERSIONS)
