"""`make check-connect`: databases, Connect, pipeline, tables and index, while everything is killed.

Two workers of Kafka Connect read PostgreSQL and MariaDB, exactly once. Random transactions change both databases, and
after each SIGKILL more of them. Then a mark is written, and when it has arrived, tables and index have to equal the
join of the databases. At the end, each change is in the topics once.

`python -m tests.system.cdc --minutes 60` goes on for an hour. `--break NAME` takes something away that keeps all equal,
and ends as soon as that is missed; `make check-connect-red` does so with each of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
import pymysql

from deltaworks import processes
from deltaworks.control import actions
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down, up
from deltaworks.stack.ports import free_ports
from tests.support.live_stack import await_restart, free_pair, kill_component, reachable, read_all
from tests.support.polling import until
from tests.system.cdc.breakages import BREAKAGES, NOTHING, Breakage
from tests.system.cdc.databases import Shop
from tests.system.cdc.demo import COMPONENTS, JOB, apply_connectors, await_equal, deploy, settings_of
from tests.system.cdc.results import make_index

_VICTIMS = ("connect", "connect-2", "source-postgres", "source-mariadb", "kafka", "opensearch", "driver")
_KILLS_OF_EACH, _COMPARISONS = 3, 20
_ORDERS, _CHANGES = 500, 40
_AWAY_S = 90.0
_TRIES, _AT_WORK_S, _AFTER_MARK_S = 6, 2.0, 20.0
"""How often something broken may stay unseen, how long changes go on before a kill, and how long is waited for rows of
another partition than that of the mark."""
_WORKERS = ("connect", "connect-2")
_ALL = "all"
_LOST = (psycopg.OperationalError, psycopg.InterfaceError, pymysql.err.OperationalError, pymysql.err.InterfaceError)


@contextmanager
def stack(folder: Path) -> Iterator[tuple[Settings, str]]:
    """Everything but Airflow, in a home of its own; its settings, and where the search is."""
    postgres, mariadb = free_ports(2)
    own = replace(
        own_settings(reachable(folder) / "home"),
        connect_port=free_pair(),
        connect_plugins=("debezium-postgres", "debezium-mariadb"),
        source_postgres_port=postgres,
        source_mariadb_port=mariadb,
        opensearch_port=free_pair(),
    )
    os.environ.update(own.environment())
    settings = settings_of()
    begun = up(settings, print, only=(*COMPONENTS, "connect-2"), tethered=True)
    try:
        assert begun.opensearch is not None
        yield settings_of(), begun.opensearch
    finally:
        with suppress(Exception):
            actions.stop(settings_of(), JOB, requested_by="check-connect")
        down(settings)


def kill(settings: Settings, victim: str) -> None:
    """SIGKILL; somebody else brings it back."""
    if victim != "driver":
        killed = kill_component(settings, victim)
        await_restart(settings, victim, killed, timeout_s=_AWAY_S)
        return
    entry = processes.find(settings.run, JOB)
    assert entry is not None
    psutil.Process(entry.pid).kill()
    until(lambda: (now := processes.find(settings.run, JOB)) is not None and now.pid != entry.pid, timeout_s=_AWAY_S)


def change(shop: Shop, count: int) -> None:
    """Some transactions; one that meets a database that is away is looked up and followed by another."""
    for _ in range(count):
        end = time.monotonic() + _AWAY_S
        while True:
            try:
                shop.change()
                break
            except _LOST:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)
                with suppress(*_LOST):
                    shop.load()
        time.sleep(0.02)


def twice(settings: Settings, *, at_least: int = _ORDERS) -> list[str]:
    """Changes of PostgreSQL that are in the topics more than once, by position in its log, key and kind."""
    found = Counter[tuple[str, int, int, bytes, str]]()
    for topic in ("cdc.orders", "cdc.order_lines"):
        for message in read_all(settings.cluster, topic):
            if message.value() is not None:
                told = json.loads(message.value() or b"")
                source = told["source"]
                place = (topic, source["lsn"], source["txId"], message.key() or b"", told["op"])
                found[place] += told["op"] != "r"  # a snapshot begins again, until it is whole
    assert found.total() > at_least
    return [str(place) for place, count in found.items() if count > 1]


@contextmanager
def begun(rng: random.Random, breakage: Breakage = NOTHING) -> Iterator[tuple[Settings, str, Shop]]:
    """Everything runs, and a snapshot of both databases was taken while their rows changed."""
    with (
        breakage.in_stack(),
        tempfile.TemporaryDirectory(prefix="deltaworks-cdc-") as folder,
        stack(Path(folder)) as (settings, url),
    ):
        shop = Shop(settings, rng)
        shop.make(_ORDERS // 10, _ORDERS)
        make_index(url)
        with ThreadPoolExecutor(1) as beside:
            changing = beside.submit(change, shop, 5 * _CHANGES)
            apply_connectors(settings, print, breakage.of_connector)
            changing.result()
        deploy(settings, print)
        yield settings, url, shop


def missed(name: str, seed: int) -> list[str]:
    """What the check finds while something is broken; it ends with the first thing. Nothing: it stays green."""
    breakage = BREAKAGES[name]
    with begun(random.Random(seed), breakage) as (settings, url, shop), ThreadPoolExecutor(1) as beside:
        for number in range(1, _TRIES + 1):
            changing = beside.submit(change, shop, 5 * _CHANGES)
            if breakage.kills:
                time.sleep(_AT_WORK_S)
                kill(settings, _WORKERS[number % 2])
            changing.result()
            found = await_equal(settings, url, shop, number, lambda line: None, after_mark_s=_AFTER_MARK_S)
            wrong = [f"{each.name}: {line:.150}" for each in found for line in each.different[:2]]
            if wrong := wrong or [f"more than once: {each}" for each in twice(settings, at_least=0)[:2]]:
                return wrong
    return []


def all_missed(names: Sequence[str], seed: int) -> int:
    """Takes one thing after the other away; 0 if each of them is missed."""
    green = []
    for name in names:
        at = time.monotonic()
        found = missed(name, seed)
        print(
            f"'{name}': {'RED' if found else 'GREEN'} after {time.monotonic() - at:.0f} s",
            *found,
            sep="\n  ",
            flush=True,
        )
        green += [] if found else [name]
    print(f"{len(names) - len(green)} of {len(names)} breakages red" + (f"; not missed: {green}" if green else ""))
    return 1 if green else 0


def main() -> int:
    """The check, or a breakage of it."""
    parser = argparse.ArgumentParser(prog="make check-connect")
    parser.add_argument("--minutes", type=float, default=0.0, help="go on for as long; 0: until each was killed enough")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--break", dest="broken", choices=[*BREAKAGES, _ALL], help="take this away: it must turn red")
    given = parser.parse_args()
    if given.broken is not None:
        return all_missed([*BREAKAGES] if given.broken == _ALL else [given.broken], given.seed)
    return check(given.minutes, given.seed)


def check(minutes: float, seed: int) -> int:
    """Kills and compares; 0 if all was equal."""
    rng, start = random.Random(seed), time.monotonic()
    kills, wrong, compared = Counter[str](), list[str](), 0
    with begun(rng) as (settings, url, shop):
        while not wrong:
            enough = compared >= _COMPARISONS and all(kills[each] >= _KILLS_OF_EACH for each in _VICTIMS)
            if enough and time.monotonic() - start > minutes * 60:
                break
            fewest = min(kills[each] for each in _VICTIMS)
            victim = rng.choice([each for each in _VICTIMS if kills[each] == fewest])
            change(shop, _CHANGES)
            if compared % 7 == 3:
                shop.add_columns()
            kill(settings, victim)
            kills[victim] += 1
            change(shop, _CHANGES)
            compared += 1
            at = time.monotonic()
            found = await_equal(settings, url, shop, compared, lambda line: None)
            wrong += [f"{each.name}: {line}" for each in found for line in each.different[:3]]
            print(
                f"{time.monotonic() - start:5.0f} s  {compared:3}: after SIGKILL of {victim}, "
                f"{found[0].expected:,} orders {'DIFFER' if wrong else 'equal'} after {time.monotonic() - at:.1f} s",
                flush=True,
            )
        wrong += [f"more than once: {each}" for each in twice(settings)[:5]]
    kinds = ", ".join(f"{kind} {count}" for kind, count in kills.items())
    transactions = ", ".join(f"{kind} {count}" for kind, count in shop.done.most_common())
    print(f"\n{shop.done.total():,} changes: {transactions}")
    for line in wrong:
        print(line)
    print(
        f"{'NOT EXACT' if wrong else 'EXACT'}: {compared} comparisons, {kills.total()} SIGKILLs ({kinds}) in "
        f"{time.monotonic() - start:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
