"""The orders pipeline with its tables in an object store, both under SIGKILLs, while records flow."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deltaworks.lakehouse import catalog
from deltaworks.settings import Settings
from tests.system.kills.orders_under_kills import OrdersUnderKills
from tests.system.kills.store_under_kills import ADDRESS, stored
from tests.system.sample_data import flowing

VICTIMS = ("worker", "driver", "jvm")


@pytest.mark.timeout(900)
def test_tables_in_an_object_store_are_exact_after_kills_of_the_store_and_of_the_stream(
    orders_settings: Settings, tmp_path: Path
) -> None:
    with stored(orders_settings) as store:
        orders = OrdersUnderKills(store.settings, tmp_path)
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
