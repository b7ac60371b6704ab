from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from deltaworks.cli.console import Steps, cell_text


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (None, ""),
        (True, "yes"),
        (1234567, "1,234,567"),
        (Decimal("2458.610000"), "2458.61"),
        (Decimal("100.000"), "100"),
        (datetime(2026, 3, 1, 22, 30, tzinfo=UTC), "2026-03-01 22:30:00"),
        (datetime(2026, 3, 1, 22, 30, 0, 5000, tzinfo=UTC), "2026-03-01 22:30:00.005"),
        ("text", "text"),
    ],
)
def test_cells_are_shown_for_people(cell: object, shown: str) -> None:
    assert cell_text(cell) == shown


def test_a_step_keeps_its_seconds_and_shows_its_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps()

    with steps.step("kafka") as report:
        report("starting")
        report("ready")

    assert [title for title, _ in steps.seconds] == ["kafka"]
    assert capsys.readouterr().out.splitlines()[-1].endswith("kafka  ready")


def test_a_step_that_fails_is_not_shown_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps()

    with pytest.raises(ValueError, match="no"), steps.step("kafka"):
        raise ValueError("no")

    assert steps.seconds == []
    assert " ok " not in capsys.readouterr().out
