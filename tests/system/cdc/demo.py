"""`make demo-cdc`: two databases, Kafka Connect, a pipeline, Delta tables and a search index, while changes flow.

Everything runs in the project `tests/system/cdc/project`, with a home of its own in it, and keeps running. A second
call goes on from there. Exit code 1 if a row or a document differs from the databases.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.text import Text

from deltaworks import clock, config
from deltaworks.cli.console import Steps, out, print_error, print_table
from deltaworks.connect import planning, project, states
from deltaworks.connect.api import ConnectApi
from deltaworks.connect.connector import Connector
from deltaworks.control import actions
from deltaworks.control.model import ALIVE
from deltaworks.control.registry import Registry
from deltaworks.errors import DeltaworksError, StackError
from deltaworks.exits import code_of
from deltaworks.settings import Settings
from deltaworks.stack import lifecycle
from tests.system.cdc.databases import MARKED, Shop
from tests.system.cdc.results import Comparison, compare, make_index

PROJECT = Path(__file__).parent / "project"
COMPONENTS = ("kafka", "registry", "connect", "source-postgres", "source-mariadb", "opensearch")
JOB = "shop"
CONNECTORS = ("shop_customers", "shop_orders")
TOPICS = ("cdc.customers", "cdc.orders", "cdc.order_lines")
_CONNECT_S, _CATCH_UP_S = 120.0, 180.0
Report = Callable[[str], None]


def settings_of(home: Path | None = None) -> Settings:
    """Of the project; the environment says the rest."""
    os.environ[config.PROJECT] = str(PROJECT)
    os.environ.setdefault("DELTAWORKS_CONNECT_PLUGINS", "debezium-postgres,debezium-mariadb")
    if home is not None:
        os.environ["DELTAWORKS_HOME"] = str(home)
    return Settings.from_environment(cwd=PROJECT)


def apply_connectors(
    settings: Settings, report: Report, changed: Callable[[Connector], Connector] = lambda connector: connector
) -> None:
    """Does what `deltaworks connect apply` does, and waits until all tasks run.

    Args:
        settings: of the project.
        report: told what it waits for.
        changed: says what becomes of each connector first.
    """
    connectors = {name: changed(each) for name, each in project.load_all(settings).items()}
    with ConnectApi.of(settings) as api:
        planned = planning.plan(connectors, api)
        planned.require_sound()
        planning.apply(planned, api)
        found = states.wait(api, CONNECTORS, _CONNECT_S, report)
        if found.has_failures or not all(map(states.is_settled, found.connectors)):
            raise StackError(f"The connectors do not run: {states.in_words(found)}.", hint="deltaworks connect status")
        report(states.in_words(found))


def deploy(settings: Settings, report: Report) -> None:
    """The pipeline runs, unless it did."""
    record = Registry.of(settings).pipeline(JOB)
    if record is not None and actions.observe(settings, JOB, record.generation).state in ALIVE:
        report(f"generation {record.generation} runs")
        return
    done = actions.deploy(settings, JOB, requested_by="demo-cdc", report=report, launch_s=_CONNECT_S)
    report(f"generation {done.generation} is {done.state}")


def await_equal(
    settings: Settings, url: str, shop: Shop, number: int, report: Report, *, after_mark_s: float = _CATCH_UP_S
) -> list[Comparison]:
    """Marks the end of the changes, and compares when the mark has arrived everywhere, until all is equal.

    The topics have two partitions, so the mark may be there before what was written in the other one: it is waited for
    this long.
    """
    shop.mark(number)
    expected, begun = shop.expected(), clock.ticks_s()
    end = begun + _CATCH_UP_S
    while True:
        found = compare(settings, url, expected)
        left = {each.name: len(each.different) for each in found if not each.equal}
        if not any(line.startswith(f"{MARKED}: ") for each in found for line in each.different):
            end = min(end, clock.ticks_s() + after_mark_s)
        if not left or clock.ticks_s() > end:
            report(f"{sum(each.expected for each in found):,} rows and documents")
            return found
        report(f"differences: {left}")
        time.sleep(1)


def run(orders: int, changes: int, rate: float, seed: int) -> bool:
    """All of it; whether everything is equal."""
    steps, memory_mb = Steps(), 0
    settings = settings_of()
    with steps.step(", ".join(COMPONENTS)) as report:
        stack = lifecycle.up(settings, report, only=COMPONENTS)
        report(f"{len(stack.components)} components, {len(stack.started)} of them started now")
    assert stack.opensearch is not None
    settings = settings_of()  # only now it is known how Connect is reached
    shop = Shop(settings, random.Random(seed))
    with steps.step("databases: tables and rows") as report:
        shop.make(orders // 10, orders)
        report(f"{len(shop.expected().orders):,} orders in PostgreSQL, {orders // 10:,} customers in MariaDB")
    with steps.step("connectors: apply, wait until their tasks run") as report:
        apply_connectors(settings, report)
    with steps.step("search index, pipeline") as report:
        if Registry.of(settings).pipeline(JOB) is None:
            make_index(stack.opensearch)
        deploy(settings, report)
    with steps.step("changes in both databases while it runs") as report:
        begun = clock.ticks_s()
        for number in range(changes):
            shop.change()
            if number == changes // 2:
                shop.add_columns()
            if number % 100 == 0:
                memory_mb = max(memory_mb, sum(each.memory_mb for each in lifecycle.status(settings)))
                report(f"{number:,} of {changes:,} transactions")
            time.sleep(max(0.0, begun + (number + 1) / rate - clock.ticks_s()))
        report(", ".join(f"{kind} {count:,}" for kind, count in shop.done.most_common()))
    with steps.step("wait until tables and index have the last change, and compare") as report:
        compared = await_equal(settings, stack.opensearch, shop, int(time.time()), report)
    memory_mb = max(memory_mb, sum(each.memory_mb for each in lifecycle.status(settings)))
    _print(compared, steps, memory_mb, stack.opensearch)
    return all(each.equal for each in compared)


def _print(compared: list[Comparison], steps: Steps, memory_mb: int, search: str) -> None:
    out.print()
    print_table(
        "Results beside the join of the databases",
        ("result", "in the databases", "found", "equal"),
        (
            (each.name, each.expected, each.found, Text("yes", "green") if each.equal else _differs(each))
            for each in compared
        ),
        right=("in the databases", "found"),
    )
    for each in compared:
        for line in each.different[:3]:
            out.print(Text(f"{each.name}: {line}"))
    total = sum(seconds for _, seconds in steps.seconds)
    verdict = "Everything is equal" if all(each.equal for each in compared) else "SOME RESULTS DIFFER"
    out.print(Text(f"{verdict} after {total:.0f} s, {memory_mb:,} MB of memory at the peak.", "bold"))
    here = PROJECT.relative_to(Path.cwd()) if PROJECT.is_relative_to(Path.cwd()) else PROJECT
    out.print(
        Text(
            f"look    cd {here}   then:\n"
            "        deltaworks status; deltaworks connect status\n"
            '        deltaworks sql "SELECT * FROM shop_orders LIMIT 5"\n'
            f"        curl '{search}/shop-orders/_search?q=city:Oslo&size=3'\n"
            "stop    deltaworks down                 keeps databases, topics, tables and index\n"
            "        deltaworks down --delete-data   deletes them"
        )
    )


def _differs(compared: Comparison) -> Text:
    return Text(f"NO, {len(compared.different):,}", "red")


def main() -> int:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(prog="make demo-cdc", description=__doc__)
    parser.add_argument("--orders", type=int, default=5_000, help="orders before the connectors start")
    parser.add_argument("--changes", type=int, default=3_000, help="transactions while the pipeline runs")
    parser.add_argument("--rate", type=float, default=50.0, help="transactions per second")
    parser.add_argument("--seed", type=int, default=7, help="of what happens")
    given = parser.parse_args()
    try:
        return 0 if run(given.orders, given.changes, given.rate, given.seed) else 1
    except DeltaworksError as error:
        print_error(str(error))
        return code_of(error)


if __name__ == "__main__":
    sys.exit(main())
