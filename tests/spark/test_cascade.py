"""The cascade of a replay with a batch job on real Spark: as in `tests/hosts/test_cascade.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.cascade import release
from deltaworks.replay.report import comparison_of
from tests.hosts.cascading import ODD_DATE, cascading
from tests.hosts.test_reprocess import day


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_on_spark_computes_what_it_has_rehearsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cascade = cascading(tmp_path, monkeypatch)
    before, at = cascade.totals(), cascade.everything()
    run = cascade.start(778, from_ms=day(0), to_ms=day(5), only_different=True)

    cascade.advance(run, "gate")
    (behind,) = [table for table in comparison_of(run.paths).tables if table.role == "batch"]
    assert cascade.everything() == at
    cascade.advance(run, "verify")
    release.complete(cascade.settings, run.plan, run.paths.read_state(), print)

    after = cascade.totals()
    assert after == cascade.expected() != before
    rehearsed = {each.after["payer"]: each.after["total"] for each in behind.samples if each.after is not None}
    assert rehearsed == {payer: total for (of_day, payer), total in after.items() if of_day == ODD_DATE}
