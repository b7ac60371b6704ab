"""Routes spread tasks one per shuffle partition."""

import pytest

from deltaworks.spark.routes import Routes, spark_hash


@pytest.mark.parametrize("tasks", [(1,), (4,), (4, 4), (8, 3, 5), (16, 1)])
def test_tasks_of_a_stage_never_share_a_shuffle_partition(tasks: tuple[int, ...]) -> None:
    routes = Routes(tasks)
    for stage, count in enumerate(tasks):
        partitions = {spark_hash(routes.by_task()[stage, task]) % routes.partitions for task in range(count)}
        assert len(partitions) == count


def test_routes_are_distinct() -> None:
    routes = Routes((4, 4, 2)).by_task()
    assert len(set(routes.values())) == 10


@pytest.mark.parametrize(("value", "expected"), [(0, 933211791), (1, -559580957), (42, 29417773), (-1, -1604776387)])
def test_hash_is_sparks(value: int, expected: int) -> None:
    """Values of `SELECT hash(CAST(x AS INT))`."""
    assert spark_hash(value) == expected
