"""Documents with a version: read, or refused with what to do."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deltaworks import formats
from deltaworks.errors import IncompatibleCheckpointError, IntentError


class Document(msgspec.Struct, frozen=True):
    """One of them."""

    batch: int
    format: int = 2


def decode(content: bytes) -> Document:
    return formats.decode(content, Document, 2, "The document x", damaged="bring back a copy", error=IntentError)


def test_what_was_written_is_read() -> None:
    assert decode(msgspec.json.encode(Document(7))) == Document(7)


@pytest.mark.parametrize("other", [b"1", b"3", b"null", b'"2"'])
def test_another_version_is_refused_whatever_else_it_says(other: bytes) -> None:
    for rest in (b"", b', "batch": 7', b', "batch": "none of them"'):
        with pytest.raises(IncompatibleCheckpointError, match=r"^The document x has format .*reads format 2\.") as told:
            decode(b'{"format": ' + other + rest + b"}")
        assert told.value.hint == "deploy the version that wrote it"
    with pytest.raises(IncompatibleCheckpointError, match="has format None"):
        decode(b"{}")


@pytest.mark.parametrize("content", [b"", b"?", b"[]", b"7", b'{"format": 2}', b'{"format": 2, "batch": "x"}', b"\xff"])
def test_what_cannot_be_read_is_refused_as_the_caller_says(content: bytes) -> None:
    with pytest.raises(IntentError, match=r"^The document x cannot be read: ") as told:
        decode(content)
    assert told.value.hint == "bring back a copy"


def test_a_file_that_does_not_exist_has_no_document(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    assert formats.read(path, Document, 2, "The document x") is None
    path.write_bytes(msgspec.json.encode(Document(7)))
    assert formats.read(path, Document, 2, "The document x") == Document(7)
