"""Routes spread tasks one per shuffle partition."""

import pytest

from deltaworks.spark.routes import Routes, spark_hash


@pytest.mark.parametrize("tasks", [(1,), (4,), (4, 4), (8, 3, 5), (16, 1)])
@pytest.mark.parametrize("slots", [1, 2, 4, 100])
def test_slots_of_a_stage_never_share_a_shuffle_partition(tasks: tuple[int, ...], slots: int) -> None:
    routes = Routes(tasks, slots)
    for stage, count in enumerate(tasks):
        used = {routes.by_task()[stage, task] for task in range(count)}
        assert len(used) == min(count, slots)
        assert len({spark_hash(route) % routes.partitions for route in used}) == len(used)


def test_stages_never_share_a_route() -> None:
    routes = Routes((4, 4, 2), 2).by_task()
    assert {routes[0, task] for task in range(4)}.isdisjoint(routes[1, task] for task in range(4))


@pytest.mark.parametrize(("value", "expected"), [(0, 933211791), (1, -559580957), (42, 29417773), (-1, -1604776387)])
def test_hash_is_sparks(value: int, expected: int) -> None:
    """Values of `SELECT hash(CAST(x AS INT))`."""
    assert spark_hash(value) == expected
