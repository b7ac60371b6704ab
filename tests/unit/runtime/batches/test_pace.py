"""When the next batch is due on a machine that has more to do than its cores can."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.runtime.batches.pace import Pace, strain


class Machine:
    """A clock, and how busy the cores are."""

    def __init__(self) -> None:
        self.now_s, self.strain = 0.0, 0.0

    def pace(self, least_s: float, most_s: float) -> Pace:
        return Pace(least_s, most_s, lambda: self.strain, lambda: self.now_s)


def intervals(pace: Pace, batches: int) -> list[float]:
    """After each of them."""
    found = []
    for _ in range(batches):
        pace.begun()
        found.append(pace.interval_s)
    return found


def test_the_interval_grows_up_to_its_limit_while_cores_are_short_and_shrinks_again() -> None:
    machine = Machine()
    pace = machine.pace(0.3, 2.0)

    machine.strain = 0.9
    grown = intervals(pace, 8)
    machine.strain = 0.5
    (kept,) = intervals(pace, 1)
    machine.strain = 0.1
    shrunk = intervals(pace, 12)

    assert grown == sorted(grown) and grown[0] > 0.3 and grown[-1] == 2.0 == kept
    assert shrunk == sorted(shrunk, reverse=True) and shrunk[-1] == 0.3


def test_a_batch_is_due_when_the_interval_is_over() -> None:
    machine = Machine()
    pace = machine.pace(1.0, 4.0)
    assert pace.due  # the first one

    machine.strain = 0.9
    for _ in range(8):
        pace.begun()
    due = []
    for machine.now_s in (3.9, 4.0):
        due.append(pace.due)
    assert due == [False, True]


@pytest.mark.parametrize("most_s", [1.0, 0.5])
def test_without_leave_of_the_author_nothing_waits(most_s: float) -> None:
    machine = Machine()
    machine.strain = 1.0
    pace = machine.pace(1.0, most_s)
    for _ in range(3):
        pace.begun()

    assert pace.interval_s == 1.0 and pace.due


def test_a_pipeline_without_a_pause_gets_one_on_a_busy_machine() -> None:
    machine = Machine()
    machine.strain = 1.0
    pace = machine.pace(0.0, 1.0)
    pace.begun()

    assert pace.interval_s > 0 and not pace.due


def test_the_strain_is_what_the_kernel_says(tmp_path: Path) -> None:
    pressure = tmp_path / "cpu"
    pressure.write_text("some avg10=37.50 avg60=1.88 avg300=10.76 total=13853403639\nfull avg10=0.00 avg60=0.00\n")

    assert strain(pressure) == 0.375


@pytest.mark.parametrize(("load", "expected"), [(1.5, 0.0), (4.5, 0.5), (40.0, 1.0)])
def test_without_the_kernels_word_the_strain_is_estimated_from_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: float, expected: float
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 4)

    assert strain(tmp_path / "missing") == expected
