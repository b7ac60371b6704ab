"""Poisoned records in a real Airflow: found, repaired, sent again from a DAG and from a killed command, each once.

The topology counts all records in one branch and adds up their prices in another, so a record that went the whole way
again would show.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.integration.own_stack.conftest import NewPipeline, new_pipeline
from tests.system.operators.conftest import counted
from tests.system.operators.prices import BETTER, DAG_ID, KEYS, NAME, WORSE, Prices
from tests.system.replays.rest import ReplayApi

__all__ = ["new_pipeline"]

pytestmark = pytest.mark.timeout(3_000)


@pytest.fixture
def prices(new_pipeline: NewPipeline) -> Iterator[Prices]:
    with ReplayApi.of(new_pipeline.settings) as airflow:
        found = Prices(new_pipeline, airflow)
        found.write(WORSE)
        airflow.wait("the DAG is there", lambda: DAG_ID in {dag.dag_id for dag in airflow.dags()}, timeout_s=240)
        yield found
        new_pipeline.deltaworks("stop", NAME)


def killed_resend(stack: NewPipeline, point: str) -> None:
    """`deltaworks dead-letters resend`, which is killed at a point."""
    code = (
        "import os, signal, sys\n"
        "from deltaworks.control import sending_again\n"
        "from deltaworks.cli import app\n"
        f"sending_again.reach = lambda point: os.kill(os.getpid(), signal.SIGKILL) if point == {point!r} else None\n"
        f"sys.argv = ['deltaworks', 'dead-letters', 'resend', {NAME!r}, '--yes']\n"
        "app.main()\n"
    )
    environment = {**os.environ, **stack.settings.process_environment()}
    done = subprocess.run([sys.executable, "-c", code], cwd=stack.project, env=environment, check=False)
    assert done.returncode == -9


def test_records_that_failed_are_sent_again_and_each_counts_once(prices: Prices) -> None:
    airflow, stack = prices.airflow, prices.stack
    stack.deltaworks("deploy", NAME)
    prices.produce()
    airflow.wait("they have failed", lambda: len(prices.letters()) == 4 * len(KEYS), timeout_s=300)
    assert prices.sums("price_sums") == dict.fromkeys(KEYS, 19)
    assert prices.sums("all_prices") == dict.fromkeys(KEYS, 6)

    prices.write(BETTER)
    stack.deltaworks("deploy", NAME)
    run = prices.send({"key": KEYS[0]}, "Reject")
    assert airflow.task(DAG_ID, run, "send").state == "skipped"
    run = prices.send({"key": KEYS[0]}, "Approve")
    assert airflow.xcom(DAG_ID, run, "send") == 4
    wanted = dict.fromkeys(KEYS, 19) | {KEYS[0]: 1027}
    airflow.wait("three of four count", lambda: prices.sums("price_sums") == wanted, timeout_s=300)
    airflow.wait("one has failed again", lambda: len(prices.letters()) == 4 * len(KEYS) + 1, timeout_s=120)

    for point in ("resends.noted", "resends.before_commit", "resends.committed"):
        killed_resend(stack, point)
    stack.deltaworks("dead-letters", "resend", NAME, "--yes")
    wanted = dict.fromkeys(KEYS, 1027)
    airflow.wait("all count", lambda: prices.sums("price_sums") == wanted, timeout_s=300)
    assert prices.sums("all_prices") == dict.fromkeys(KEYS, 6), "the branch that had them has not counted them again"
    assert len(stack.table("prices_read")) == 5 * len(KEYS)
    failures = json.loads(stack.deltaworks("dead-letters", "resend", NAME, "--dry-run", "--json"))
    again = {group["stays"]: group["again"] for group in failures["groups"]}
    assert again[None] >= 1, "those that failed again can be sent again"
    sent = prices.sent_again()
    prices.close_days()
    count = 5 * len(KEYS) + 2
    airflow.wait("the day has closed", lambda: len(stack.table("prices_read")) == count, timeout_s=120)

    stack.deltaworks("replay", NAME, "--only-different", "--yes", "--reason", "the repaired code")
    (done,) = json.loads(stack.deltaworks("replays", NAME, "--json"))["publications"]
    assert set(done["tables"]) == {"prices_read", "prices_dead"}, "other coordinates, and no failures any more"
    assert len(stack.table("prices_read")) == count
    assert prices.sums("price_sums") == wanted
    counted(f"{len(prices.letters())} dead letters, {sent} sent again, 3 kills, {len(KEYS)} sums equal")
