"""Routes spread tasks one per shuffle partition."""

import pytest

from deltaworks.spark.routes import Routes, spark_hash
from deltaworks.topology.stages import StageGroup


def alone(tasks: tuple[int, ...]) -> tuple[StageGroup, ...]:
    return tuple(StageGroup((stage,), cyclic=False) for stage in range(len(tasks)))


@pytest.mark.parametrize("tasks", [(1,), (4,), (4, 4), (8, 3, 5), (16, 1)])
@pytest.mark.parametrize("shards", [1, 2, 4, 100])
def test_shards_of_a_stage_never_share_a_shuffle_partition(tasks: tuple[int, ...], shards: int) -> None:
    routes = Routes(tasks, shards, alone(tasks))
    for stage, count in enumerate(tasks):
        used = {routes.by_task()[stage, task] for task in range(count)}
        assert len(used) == min(count, shards)
        assert len({spark_hash(route) % routes.partitions for route in used}) == len(used)


def test_stages_never_share_a_route() -> None:
    routes = Routes((4, 4, 2), 2, alone((4, 4, 2))).by_task()
    assert {routes[0, task] for task in range(4)}.isdisjoint(routes[1, task] for task in range(4))


def test_one_shard_runs_all_stages_in_one_operator() -> None:
    routes = Routes((4, 2), 1, alone((4, 2)))
    assert [operator.stages for operator in routes.operators] == [(0, 1)]
    assert len(set(routes.by_task().values())) == 1


def test_stages_among_which_records_go_round_share_one_shard() -> None:
    routes = Routes((4, 4, 4), 2, (StageGroup((0, 2), cyclic=True), StageGroup((1,), cyclic=False)))
    assert [(operator.stages, operator.shards) for operator in routes.operators] == [((0, 2), 1), ((1,), 2)]
    assert len({route for (stage, _), route in routes.by_task().items() if stage != 1}) == 1


@pytest.mark.parametrize(("value", "expected"), [(0, 933211791), (1, -559580957), (42, 29417773), (-1, -1604776387)])
def test_hash_is_sparks(value: int, expected: int) -> None:
    """Values of `SELECT hash(CAST(x AS INT))`."""
    assert spark_hash(value) == expected
