"""The choices of the soak come from its seed, its way out of a refusal from the message, its last line from counts."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path

import pytest

from tests.system.soak.__main__ import rounds
from tests.system.soak.kinds import KINDS
from tests.system.soak.measures import slope_per_hour
from tests.system.soak.models import Message
from tests.system.soak.record import Fault, Record
from tests.system.soak.streams import Refusal
from tests.system.soak.topics import OutsideConsumer


def test_the_same_seed_gives_the_same_rounds() -> None:
    first, again, other = (list(islice(rounds(dict(KINDS), random.Random(seed), 3), 40)) for seed in (5, 5, 6))
    assert first == again != other


def test_a_run_without_faults_only_compares() -> None:
    assert list(islice(rounds({}, random.Random(5), 3), 3)) == [[], [], []]


def test_every_kind_is_fired_as_often_as_its_weight_says() -> None:
    bag = [name for name, kind in KINDS.items() for _ in range(kind.weight)]
    chosen: list[str] = []
    for together in rounds(dict(KINDS), random.Random(1), 3):
        chosen += together
        if len(chosen) >= len(bag):
            break
    assert sorted(chosen) == sorted(bag)


def test_every_kind_is_fired_once_if_that_is_wanted() -> None:
    chosen = [name for together in rounds(dict(KINDS), random.Random(1), 3, once=True) for name in together]
    assert sorted(chosen) == sorted(KINDS)


def test_kinds_that_need_to_be_alone_are() -> None:
    for together in islice(rounds(dict(KINDS), random.Random(2), 3), 200):
        assert len(together) == 1 or not any(KINDS[name].alone for name in together)
        assert len(together) <= 3


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("TableError: others wrote\n  Hint: deltaworks tables repair soak_hours", ("tables", "repair", "soak_hours")),
        ("... Hint: deltaworks run soak_matches --take-over, if that is meant", ("run", "soak_matches", "--take-over")),
        ("Hint: does a second driver run? `deltaworks status`; `deltaworks stop orders`", ("stop", "orders")),
        ("Hint: bring the newest checkpoint back", None),
    ],
)
def test_the_way_out_is_the_command_of_the_hint(text: str, command: tuple[str, ...] | None) -> None:
    assert Refusal(78, text).command == command


def test_the_record_ends_with_what_scripts_read(tmp_path: Path) -> None:
    record = Record(tmp_path / "soak.jsonl")
    for kind, lost in (("kill JVM", 0), ("kill JVM", 2), ("clock back", 0)):
        record.fired(Fault(kind, "soak_ledger", 1.0, recovered_after_s=3.0, lost=lost))
        record.settled(record.faults[-1])
    assert record.last_line() == "soak: 3 faults of 2 kinds, 2 lost, 0 twice"
    assert not record.exact
    assert [json.loads(line)["lost"] for line in record.file.read_text().splitlines()] == [0, 2, 0]


def test_a_fault_that_nothing_recovered_from_is_not_exact_although_no_row_is_missing(tmp_path: Path) -> None:
    record = Record(tmp_path / "soak.jsonl")
    record.failed("soak_ledger did not catch up")
    assert not record.exact


def test_what_readers_saw_counts_in_the_last_line(tmp_path: Path) -> None:
    record = Record(tmp_path / "soak.jsonl")
    record.failed("rows: (1, 2) came 2 times", twice=1)
    record.failed("rows: entry 7 of a came, 4 was next", lost=3)
    assert record.last_line() == "soak: 0 faults of 0 kinds, 3 lost, 1 twice"
    assert not record.exact


def test_an_entry_that_comes_again_makes_no_later_one_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OutsideConsumer, "_run", lambda _: None)
    record = Record(tmp_path / "soak.jsonl")
    reader = OutsideConsumer("broker:1", ["soak-echo"], record)
    for offset, seq in enumerate((0, 1, 2, 3, 1, 4, 7)):  # 1 twice, 5 and 6 not at all
        reader._take(Message("soak-echo", 0, offset, b"a", b'{"seq": %d}' % seq, 0))
    assert (record.lost, record.twice) == (2, 1)


def test_growth_is_a_part_of_the_mean_per_hour() -> None:
    growth = slope_per_hour([(30.0 * n, 100.0 + n / 120 * 10) for n in range(240)])
    assert growth is not None
    assert growth == pytest.approx(10 / 110, rel=0.01)
    assert slope_per_hour([(0.0, 1.0)]) is None
