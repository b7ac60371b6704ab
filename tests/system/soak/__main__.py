"""`python -m tests.system.soak --minutes N [--seed S] [--kinds a,b] [--mutation NAME]`: `make soak`."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down, up
from tests.mutation import MUTATIONS
from tests.system.soak import broker
from tests.system.soak.faulty_disk import Disk
from tests.system.soak.kinds import KINDS, Kind
from tests.system.soak.measures import Measures
from tests.system.soak.record import Fault, Record
from tests.system.soak.soak import NAMES, NotRecoveredError, Soak
from tests.system.soak.ways_out import recover

_QUIET_S = 60.0
"""Between two comparisons of a run without faults."""
_NONE = "none"
_JOBS = Path(__file__).with_name("jobs")


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _arguments(arguments)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all that it started ends with it
    try:
        return _soak(chosen)
    finally:
        signal.signal(signal.SIGTERM, before)


def _soak(chosen: argparse.Namespace) -> int:
    kinds = {name: KINDS[name] for name in chosen.kinds}
    print(f"soak: {chosen.minutes:g} minutes, seed {chosen.seed}, {len(kinds)} kinds", flush=True)
    work = Path(tempfile.mkdtemp(prefix="deltaworks-soak-")).resolve()
    record = Record(chosen.record or Path(f"soak-{chosen.seed}.jsonl").absolute())
    record.file.unlink(missing_ok=True)
    record.note("begin", seed=chosen.seed, minutes=chosen.minutes, kinds=list(kinds), mutation=chosen.mutation)
    stack_disk = Disk((work / "stack" / "kafka",), work / "broker-disk")
    stack_disk.build()
    own = own_settings(work / "stack")
    stack = broker.with_faulty_disk(own, stack_disk)
    up(stack, print, only=("kafka",), tethered=True)
    try:
        exact = _run(own, stack, stack_disk, work, record, kinds, chosen)
    finally:
        down(stack)
    if exact and not chosen.keep:
        shutil.rmtree(work)
    else:
        print(f"everything that was written is in {work}")
    print(record.last_line(), flush=True)
    return 0 if exact else 1


def _run(
    own: Settings,
    stack: Settings,
    stack_disk: Disk,
    work: Path,
    record: Record,
    kinds: dict[str, Kind],
    chosen: argparse.Namespace,
) -> bool:
    soak = Soak(_project(own, work), stack, stack_disk, work, record, chosen.seed, chosen.rate)
    if chosen.mutation is not None:
        for name in NAMES:
            (soak.shared / name / "mutation").write_text(chosen.mutation)
    measures = Measures(soak)
    try:
        soak.begin()
        soak.judge([])
        end = time.monotonic() + chosen.minutes * 60
        for names in rounds(kinds, soak.rng, chosen.together, once=chosen.once):
            if time.monotonic() > end or record.failures:
                break
            _round(soak, {name: kinds[name] for name in names})
            soak.disk.keep_up()
    except Exception as wrong:
        record.failed(f"{type(wrong).__name__}: {wrong}")
    finally:
        measures.close()
        soak.close()
    print(f"\n{record.table()}\n\n{measures.table()}\n")
    print(f"read from outside: {soak.reader.reads} queries, {soak.consumer.reads:,} records")
    print(f"starts of drivers: {', '.join(f'{name} {len(s.ends)}' for name, s in soak.streams.items())}")
    for error, count in soak.reader.errors.most_common(5):
        print(f"  {count} queries failed: {error}")
    for failure in record.failures:
        print(f"FAILED: {failure}")
    record.note("end", summary=record.last_line(), failures=record.failures)
    return record.exact


def _round(soak: Soak, chosen: dict[str, Kind]) -> None:
    """These faults one after the other, without waiting in between; then recovery and comparison."""
    fired: list[Fault] = []
    if not chosen:
        time.sleep(_QUIET_S)
        soak.judge([])
    for name, kind in chosen.items():
        begun = time.time()
        what = kind.fire(soak, soak.rng)
        soak.say(f"{name}: {what or 'did not fire'}")
        if what is None:
            soak.record.note("did not fire", kind=name)
            continue
        fired.append(Fault(name, what, begun))
        soak.record.fired(fired[-1])
    for fault in fired:
        kind = chosen[fault.kind]
        back = kind.way_back
        try:
            recover(
                soak, fault, may_refuse=kind.may_refuse,
                otherwise=None if back is None else lambda back=back, fault=fault: back(soak, fault),  # type: ignore[misc]
            )  # fmt: skip
        except NotRecoveredError as error:
            soak.record.failed(f"{fault.kind} ({fault.what}): {error}")
            break
        fault.recovered_after_s = round(time.time() - fault.at_s, 1)
    if fired and not soak.record.failures:
        soak.judge(fired)
    for fault in fired:
        soak.record.settled(fault)


def rounds(kinds: dict[str, Kind], rng: random.Random, at_most: int, *, once: bool = False) -> Iterator[list[str]]:
    """Which faults are fired together, in random order: each as often as its weight says and for ever, or each once."""
    while not kinds:
        yield []
    while True:
        bag = [name for name, kind in kinds.items() for _ in range(1 if once else kind.weight)]
        rng.shuffle(bag)
        while bag:
            together = [bag.pop()]
            wanted = rng.randrange(1, at_most + 1)
            while len(together) < wanted and bag and not kinds[together[-1]].alone:
                if kinds[bag[-1]].alone or bag[-1] in together:
                    break
                together.append(bag.pop())
            yield together
        if once:
            return


def _project(own: Settings, work: Path) -> Settings:
    """A project with the jobs of the soak, and a home of its own for their streams."""
    project, home = work / "project", work / "home"
    shutil.copytree(_JOBS, project / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    (project / "jobs" / "quality").mkdir()
    home.mkdir()
    package, origin, *others = own.python_path
    python_path = (package, project, origin, *others)  # the tests are in the origin
    return replace(own, project=project, home=home, driver_memory="512m", python_path=python_path)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.system.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--once", action="store_true", help="end when each kind was fired once")
    parser.add_argument("--seed", type=int, default=None, help="of all choices; default: another one each time")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"{_NONE}, or some of: {', '.join(KINDS)}")
    parser.add_argument("--without", default="", help="all but these")
    parser.add_argument("--together", type=int, default=3, help="faults of one round at most")
    parser.add_argument("--mutation", choices=MUTATIONS, help="applied to every process; the run must fail")
    rate = 7.5 * (os.cpu_count() or 2)
    parser.add_argument("--rate", type=float, default=rate, help="entries per second; default: by the cores")
    parser.add_argument("--record", type=Path, help="JSON lines; default: soak-SEED.jsonl")
    parser.add_argument("--keep", action="store_true", help="the folder of the run stays")
    chosen = parser.parse_args(arguments)
    chosen.kinds = [kind.strip() for kind in chosen.kinds.split(",") if kind.strip() != _NONE]
    without = [kind.strip() for kind in chosen.without.split(",") if kind.strip()]
    if unknown := [kind for kind in (*chosen.kinds, *without) if kind not in KINDS]:
        parser.error(f"no such kind: {', '.join(unknown)}; there are: {', '.join(KINDS)}")
    chosen.kinds = [kind for kind in chosen.kinds if kind not in without]
    if chosen.seed is None:
        chosen.seed = random.SystemRandom().randrange(1_000_000)
    return chosen


if __name__ == "__main__":
    sys.exit(main())
