"""Lines and documents that name a person lose what is theirs; everything else keeps its place."""

from pathlib import Path

import msgspec
import pytest

from deltaworks.erase import texts
from deltaworks.topology.persons import Person

ADA = Person.of("u-17")


def test_lines_of_a_log_are_overwritten_where_they_are(tmp_path: Path) -> None:
    log = tmp_path / "orders.log"
    log.write_text("begun\nrecord u-17 failed: Ada\nu-171 too\nlast u-17")
    before = log.stat()
    with log.open("a") as running:  # a process that goes on with its log
        assert texts.count(log, ADA) == texts.erase(log, ADA) == 2
        running.write("\nand on")
    lines = log.read_text().split("\n")
    assert [line.rstrip() for line in lines] == ["begun", "[erased]", "u-171 too", "[erased]", "and on"]
    assert log.stat().st_ino == before.st_ino and log.stat().st_size == before.st_size + len("\nand on")
    assert texts.erase(log, ADA) == 0


@pytest.mark.parametrize("content", ["", "u-17", "u-17\n", "\n\nu-17\n\n", "a\r\nu-17 b\r\n"])
def test_the_key_is_gone_from_a_file_of_any_shape(content: str, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(content.encode())
    assert texts.erase(log, ADA) == content.count("u-17")
    assert "u-17" not in log.read_text() and log.stat().st_size == len(content)


def test_texts_of_a_document_are_replaced(tmp_path: Path) -> None:
    document = tmp_path / "outcome.json"
    document.write_bytes(
        msgspec.json.encode({"reason": "order of u-17", "u-17": 1, "of": ["u-171", ["u-17"]], "n": 17})
    )
    document.chmod(0o600)
    assert texts.count(document, ADA) == texts.erase(document, ADA) == 3
    assert msgspec.json.decode(document.read_bytes()) == {
        "reason": "[erased]", "[erased]": 1, "of": ["u-171", ["[erased]"]], "n": 17,
    }  # fmt: skip
    assert document.stat().st_mode & 0o777 == 0o600
    assert not texts.names(document, ADA)


def test_a_document_that_is_cut_off_is_handled_as_lines(tmp_path: Path) -> None:
    document = tmp_path / "cut.json"
    document.write_text('{"reason": "of u-17"')
    assert texts.erase(document, ADA) == 1 and not texts.names(document, ADA)


def test_binary_files_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"\0\1u-17")
    (tmp_path / "a.log").write_text("a")
    (tmp_path / "empty").touch()
    assert [texts.is_text(tmp_path / name) for name in ("data.mdb", "a.log", "empty")] == [False, True, True]
    assert texts.names(tmp_path / "data.mdb", ADA) and not texts.names(tmp_path / "empty", ADA)
