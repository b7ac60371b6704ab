"""A checkpoint goes on only if it knows what its outputs hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.control.done import Done, require_known
from deltaworks.control.intents import Intent, Intents, token
from deltaworks.errors import IntentError
from deltaworks.files import LocalFiles
from deltaworks.kafka.ranges import Range


def intents(folder: Path, *stops: int, first: int = 0) -> Intents:
    """One batch up to each offset."""
    made = Intents(LocalFiles(folder))
    start, previous = 0, ""
    for batch, stop in enumerate(stops, start=first):
        intent = Intent(
            batch=batch, lineage="line", query="run", generation=1, code="", clock_ms=batch, tick=False,
            ranges=[Range("in", 0, start, stop)], end={"in": {"0": stop}}, previous=previous,
        )  # fmt: skip
        start, previous = stop, made.put(intent).digest
    return made


def done(made: Intents, batch: int) -> Done:
    return Done("table 'rows'", batch, token(made.require(batch).digest))


def test_outputs_may_hold_any_batch_that_is_known(tmp_path: Path) -> None:
    made = intents(tmp_path, 5, 9, 12)
    require_known([done(made, 2), done(made, 0)], made, "orders")
    require_known([], Intents(LocalFiles(tmp_path / "new")), "orders")


def test_batches_so_old_that_their_intent_is_gone_are_known_by_those_after_them(tmp_path: Path) -> None:
    require_known([Done("table 'rows'", 3, 17)], intents(tmp_path, 5, 9, first=10), "orders")


def test_what_was_handed_over_needs_no_intent(tmp_path: Path) -> None:
    require_known([Done("table 'rows'", 9, 17)], Intents(LocalFiles(tmp_path)), "orders", first_batch=10)
    with pytest.raises(IntentError, match="holds batch 10"):
        require_known([Done("table 'rows'", 10, 17)], Intents(LocalFiles(tmp_path)), "orders", first_batch=10)


def test_a_home_that_is_older_than_its_outputs_is_refused(tmp_path: Path) -> None:
    newer, older = intents(tmp_path / "newer", 5, 9, 12), intents(tmp_path / "older", 5, 9)
    with pytest.raises(IntentError, match=r"table 'rows' holds batch 2 .* knows batches up to 1"):
        require_known([done(newer, 2)], older, "orders")
    with pytest.raises(IntentError, match="knows batches up to none"):
        require_known([done(newer, 2)], Intents(LocalFiles(tmp_path / "empty")), "orders")


def test_a_batch_that_was_made_of_other_records_is_refused(tmp_path: Path) -> None:
    mine, other = intents(tmp_path / "mine", 5, 9), intents(tmp_path / "other", 5, 8)
    with pytest.raises(IntentError, match=r"holds batch 1 .* with other records"):
        require_known([done(other, 1)], mine, "orders")
    require_known([done(other, 0)], mine, "orders")
