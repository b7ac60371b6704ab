"""`make check-monitoring`: what operators are shown of real streams is right, and alerts come once, under SIGKILLs.

Three streams, Kafka Connect, Prometheus, Alertmanager and the page of the streams run:

1. a driver, a worker, Prometheus and the server of the page get SIGKILL; later, drivers again and again;
2. the reason of each alert is caused: a receiver is told once of it, and once that it is over;
3. meanwhile, every panel of every dashboard gets numbers from Prometheus;
4. at the end, heartbeat, metrics, page, `status` and `store stats` say what the topics say.

Ranges of the rules are multiplied by one of two factors (`run.py`): with one alone, either a week would last hours, or
three drivers could not start within an hour. The disk does not fill; the drivers are told so (`hooks.py`).

`--break NAME` takes something away that the check relies on, and it must turn red; `--break all` does so with each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.support.monitoring import Webhook, panels, without_numbers
from tests.system.monitoring.breakages import BREAKAGES, NOTHING, is_missed, missed
from tests.system.monitoring.causes import Cause, all_causes, caused, strays, without_texts
from tests.system.monitoring.figures import of_orders, of_watched
from tests.system.monitoring.job import NAMES
from tests.system.monitoring.run import Page, Run, apply_connector, flowing, stack
from tests.system.sample_data import flowing as sample_data

_ALL = "all"
_RATE, _ORDERS_RATE = 10.0, 20.0
_PANELS_S = 120.0
_KILLS_AT_LEAST = 8
_SHOWN = 10


def kills(run: Run, page: Page) -> None:
    """One of each."""
    for victim, kill in (
        ("worker", partial(run.kill_worker, "watched")),
        ("prometheus", run.kill_prometheus),
        ("page", page.kill),
        ("driver", partial(run.kill_driver, "watched")),
    ):
        begun = time.monotonic()
        kill()
        print(f"SIGKILL of {victim}: back after {time.monotonic() - begun:.0f} s", flush=True)
    run.kills["page"] += 1
    page.says("streams")


def one_after_the_other(run: Run, track: Sequence[Cause]) -> list[str]:
    """Causes them; what is wrong."""
    return [line for cause in track for line in caused(run.hook, cause)]


def shown_on_dashboards(run: Run) -> list[str]:
    """The panels without a number."""
    missing = without_numbers(run.settings, panels(), within_s=_PANELS_S)
    print(f"{len(panels()) - len(missing)} of {len(panels())} queries of panels have numbers", flush=True)
    return [f"{name.strip()}: no number" for name in missing]


def whole(run: Run) -> tuple[int, list[str]]:
    """All of it: how many figures were compared, and what is wrong."""
    with ExitStack() as open_:
        for name in (*NAMES, "orders"):
            run.deploy(name)
        page = run.page()
        open_.callback(page.close)
        connectors = apply_connector(run)
        open_.callback(connectors.communicate)
        open_.callback(connectors.terminate)
        with flowing(run.settings, NAMES, _RATE), sample_data(run.settings, _ORDERS_RATE):
            kills(run, page)
            tracks = all_causes(run)
            work: list[Callable[[], list[str]]] = [partial(one_after_the_other, run, track) for track in tracks]
            work.append(partial(shown_on_dashboards, run))
            with ThreadPoolExecutor(len(work)) as beside:
                going_on = [beside.submit(each) for each in work]
            wrong = [line for each in going_on for line in each.result()]
        wrong += [*strays(run.hook, [cause for track in tracks for cause in track]), *without_texts(run.hook)]
        count = 0
        for compared, found in (of_watched(run, page), of_orders(run, page)):
            count += compared
            wrong += found
    return count, wrong


def check() -> int:
    """The check; its exit code."""
    begun, hook = time.monotonic(), Webhook()
    count, wrong, told = 0, list[str](), 0
    with (
        tempfile.TemporaryDirectory(prefix="deltaworks-monitoring-") as folder,
        stack(Path(folder), hook) as settings,
    ):
        run = Run(settings, hook)
        try:
            count, wrong = whole(run)
        except Exception:
            wrong = [traceback.format_exc()]
    told = len({alert for alert, _, _ in hook.told})
    victims = ", ".join(f"{victim} {number}" for victim, number in run.kills.most_common())
    for line in wrong[:_SHOWN]:
        print(line)
    print(
        f"\n{told} alerts told and cleared, {len(panels())} queries of panels, {count} figures compared, "
        f"{run.kills.total()} SIGKILLs ({victims}) in {time.monotonic() - begun:.0f} s"
    )
    exact = not wrong and run.kills.total() >= _KILLS_AT_LEAST
    print("EXACT" if exact else f"NOT EXACT: {len(wrong)} wrong" if wrong else "TOO FEW KILLS")
    return 0 if exact else 1


def all_missed(names: Sequence[str]) -> int:
    """Takes one thing after the other away, at first nothing; 0 if each of them is missed, and nothing is not."""
    green, wrong = [], False
    for name in (NOTHING, *names):
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="deltaworks-monitoring-") as folder:
            try:
                found = missed(name, Path(folder))
            except Exception:  # says nothing about the breakage; the others are tried all the same
                found = [traceback.format_exc()]
        took_s = time.monotonic() - begun
        red = bool(found) if name == NOTHING else is_missed(name, found)
        print(f"'{name}': {'RED' if red else 'GREEN'} after {took_s:.0f} s", *found, sep="\n  ", flush=True)
        if name == NOTHING:
            wrong = red
        else:
            green += [] if red else [name]
    print(f"{len(names) - len(green)} of {len(names)} breakages red" + (f"; not missed: {green}" if green else ""))
    return 1 if green or wrong else 0


def main() -> int:
    """The check, or a breakage of it."""
    parser = argparse.ArgumentParser(prog="make check-monitoring")
    parser.add_argument("--break", dest="broken", choices=[*BREAKAGES, _ALL], help="take this away: it must turn red")
    given = parser.parse_args()
    if given.broken is not None:
        return all_missed([*BREAKAGES] if given.broken == _ALL else [given.broken])
    return check()


if __name__ == "__main__":
    sys.exit(main())
