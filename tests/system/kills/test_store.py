"""The orders pipeline with its tables in an object store, both under SIGKILLs, while records flow."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import exits
from deltaworks.control import fence
from deltaworks.control.paths import PipelinePaths
from deltaworks.lakehouse import catalog
from deltaworks.settings import Settings
from tests.system.kills.store_under_kills import ADDRESS, share_keys, stored
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.sample_data import flowing

LASTING = {"batches", "checkpoint", "checkpoints", "codes", "current", "generation", "intents", "plan.json"}
"""What the folder of a pipeline in a home does not have if an object store has it."""
VICTIMS = ("worker", "driver", "jvm")


@pytest.mark.timeout(900)
def test_tables_in_an_object_store_are_exact_after_kills_of_the_store_and_of_the_stream(
    orders_settings: Settings, tmp_path: Path
) -> None:
    with stored(orders_settings) as store:
        orders = StreamUnderKills(store.settings, tmp_path)
        with flowing(store.settings, rate=100.0), orders.running():
            for victim in VICTIMS:
                orders.kill(victim, random.Random(victim))
                store.kill()
            orders.inject("delta.after_commit:order_counts", "kill")
        store.await_back()
        outcome = orders.check()
        assert [comparison for comparison in outcome.comparisons if not comparison.equal] == []
        assert (outcome.stores, outcome.rebuilt_stores) == ([], [])
        assert [victim for victim, _ in outcome.kills] == list(VICTIMS) and len(store.kills) == len(VICTIMS)
        assert str(catalog.table(store.settings.tables, "order_counts").path) == f"{ADDRESS}/order_counts"
        assert not list(store.settings.local_tables.rglob("*.parquet")), "nothing of them is in the home"


@pytest.mark.slow  # five minutes
@pytest.mark.timeout(900)
def test_a_stream_goes_on_exactly_on_another_machine_while_the_first_one_is_cut_off_and_wakes_up(
    orders_settings: Settings, tmp_path: Path
) -> None:
    with stored(orders_settings, everything=True) as store:
        here, there = store.settings, replace(store.settings, home=tmp_path / "there")
        share_keys(here, there)
        first, orders = StreamUnderKills(here, tmp_path / "first"), StreamUnderKills(there, tmp_path / "second")
        with flowing(here, rate=100.0):
            with first.cut_off() as old, orders.running():
                orders.kill("driver", random.Random(1))
                store.kill()
                orders.inject("checkpoint.copied", "kill")
                orders.kill("jvm", random.Random(2))
            assert old.wait(timeout=240) == exits.LEASE
        store.await_back()
        outcome = orders.check()
        assert [comparison for comparison in outcome.comparisons if not comparison.equal] == []
        assert (outcome.stores, outcome.rebuilt_stores) == ([], [])
        assert fence.read(PipelinePaths.of(there, "orders").fence) > 4
        assert not LASTING & {path.name for home in (here, there) for path in home.pipeline("orders").iterdir()}
