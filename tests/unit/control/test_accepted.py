"""What was accepted for a checkpoint: kept, and forgotten where it says nothing any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.control import accepted
from deltaworks.control.accepted import Accepted
from deltaworks.errors import IncompatibleCheckpointError


def test_what_was_accepted_stays(tmp_path: Path) -> None:
    path = tmp_path / "accepted.json"
    assert accepted.read(path) == Accepted()

    accepted.add(path, topics={}, begins={"a": {"0": 40}, "b": {"0": 7}})
    accepted.add(path, topics={"c": "id"}, begins={"a": {"1": 3}})

    assert accepted.read(path) == Accepted(topics={"c": "id"}, begins={"a": {"0": 40, "1": 3}, "b": {"0": 7}})


def test_records_given_up_of_a_topic_say_nothing_of_the_one_that_was_recreated(tmp_path: Path) -> None:
    path = tmp_path / "accepted.json"
    accepted.add(path, topics={}, begins={"a": {"0": 40}, "b": {"0": 7}})

    accepted.add(path, topics={"a": "another"}, begins={})
    assert accepted.read(path) == Accepted(topics={"a": "another"}, begins={"b": {"0": 7}})

    accepted.add(path, topics={}, begins={"a": {"0": 2}})
    assert accepted.read(path).begins["a"] == {"0": 2}


@pytest.mark.parametrize("content", ["", "{", '{"format": 9}'])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "accepted.json"
    path.write_text(content)
    with pytest.raises(IncompatibleCheckpointError, match="accept them again"):
        accepted.read(path)
