"""Prints what the gate catches, misses and stops without need: `python -m tests.system.data_defects [JOB ...]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from deltaworks.quality import Verdict
from tests.system.data_defects.checking import IN_ONE_BATCH, check_clean, check_defects
from tests.system.data_defects.defects import DEFECTS

SIZES = (50, 300, 1_000, 1_500, 3_000)
"""Records of runs without defects; one run in four reads them in one batch."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.data_defects", description=__doc__)
    parser.add_argument("job", nargs="*", help=f"{', '.join(DEFECTS)}; default: all")
    parser.add_argument("--clean", type=int, default=20, help="runs without defects, per job")
    parser.add_argument("--records", type=int, help="of the run that defects are planted into")
    parser.add_argument("--seed", type=int, default=1, help="of that run")
    parser.add_argument("--verbose", action="store_true", help="say what caught each defect")
    options = parser.parse_args()
    wrong, begun = 0, time.process_time()
    print(f"{'job':<12}{'defects':>8}{'caught':>8}{'missed':>8}{'clean':>8}{'false':>8}{'refused':>8}{'CPU s':>8}")
    for job in options.job or DEFECTS:
        wrong += _job(job, options)
    print(f"{wrong} wrong, {time.process_time() - begun:.0f} s of CPU")
    return min(wrong, 1)


def _job(job: str, options: argparse.Namespace) -> int:
    begun = time.process_time()
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as home:
        run = {"records": options.records, "seed": options.seed, "thorough": options.verbose}
        checked = list(check_defects(job, Path(home), DEFECTS[job], **run))
    for each in checked:
        if not each.caught:
            notes.append(f"  missed: {each.defect.name}")
        elif options.verbose:
            notes.append(f"  {each.defect.name}: {'; '.join(map(_said, each.blocking))}")
        notes += [f"  refuses the correction of '{each.defect.name}': {_said(v)}" for v in each.against_the_correction]
    false = 0
    for seed in range(100, 100 + options.clean):
        with tempfile.TemporaryDirectory() as home:
            per_batch = IN_ONE_BATCH if seed % 4 == 0 else None
            blocking = check_clean(job, Path(home), records=SIZES[seed % 5], seed=seed, per_batch=per_batch)
        false += bool(blocking)
        notes += [f"  false, seed {seed}: {_said(verdict)}: {verdict.sample}" for verdict in blocking]
    missed = sum(not each.caught for each in checked)
    refused = sum(bool(each.against_the_correction) for each in checked)
    caught = len(checked) - missed
    counts = (len(checked), caught, missed, options.clean, false, refused, round(time.process_time() - begun))
    print(f"{job:<12}" + "".join(f"{count:>8}" for count in counts))
    for note in notes:
        print(note)
    return missed + false + refused


def _said(verdict: Verdict) -> str:
    return f"{verdict.table}: {verdict.expects}" + (f" (ERROR: {verdict.error})" if verdict.error else "")


if __name__ == "__main__":
    sys.exit(main())
