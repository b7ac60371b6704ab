"""A checkpoint of another format is refused before anything of it, or of its tables, is touched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deltaworks import StreamsBuilder
from deltaworks.control.checkpoint import (
    FORMAT,
    CheckpointPlan,
    fitting_plan,
    open_plan,
    stored_plan,
    usable,
    write_plan,
)
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import IncompatibleCheckpointError
from jobs.orders import pipeline as orders
from tests.support import old_checkpoint


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def plan_of(**changes: object) -> CheckpointPlan:
    values: dict[str, object] = {
        "lineage": "l",
        "query_id": "q",
        "fingerprint": {},
        "partitions": {"t": 1},
        "tasks": (1,),
        "shards": 1,
    }
    return CheckpointPlan(**(values | changes))  # type: ignore[arg-type]


def test_a_real_checkpoint_of_format_2_is_refused_with_both_formats_and_what_to_do(tmp_path: Path) -> None:
    old_checkpoint.unpack(tmp_path)
    root = tmp_path / "pipelines" / "orders"
    before, plan = contents(tmp_path), orders.plan()
    partitions = {"raw-orders": 4, "user-data": 4}
    paths = PipelinePaths.at(root)
    arguments = (paths.current.plan, "orders", plan.fingerprint(), partitions, plan.tasks(partitions))
    starts: list[Callable[[], object]] = [lambda: open_plan(*arguments, 2), lambda: fitting_plan(*arguments)]
    for start in starts:
        with pytest.raises(IncompatibleCheckpointError) as error:
            start()
        told = str(error.value)
        assert (
            f"The checkpoint's plan {paths.current.plan} has format 2; this deltaworks reads format {FORMAT}." in told
        )
        assert "deploy the version of deltaworks that wrote it, or start with a new checkpoint" in told
        assert f"move {root} away" in told
    assert contents(tmp_path) == before and any(name.startswith("tables/") for name in before)


@pytest.mark.parametrize("other", [None, FORMAT - 1, FORMAT + 1, "x"])
def test_any_other_format_is_refused_whatever_else_it_holds(tmp_path: Path, other: object) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"format": other, "what": "nobody knows"}))
    with pytest.raises(IncompatibleCheckpointError, match=f"has format {other}; .* format {FORMAT}"):
        stored_plan(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format":%d}' % FORMAT, b"\0" * 100])
def test_a_torn_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(IncompatibleCheckpointError, match=r"cannot be read(?s:.*)restore a copy"):
        stored_plan(path)


def test_of_a_later_checkpoint_all_are_moved_away_together(tmp_path: Path) -> None:
    path = tmp_path / "orders" / "checkpoints" / "q2" / "plan.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"format":1}')
    with pytest.raises(IncompatibleCheckpointError, match=f"move {tmp_path / 'orders'} away"):
        stored_plan(path)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    plan = plan_of(first_batch=3, start={"t": {"0": 7}})
    write_plan(tmp_path / "plan.json", plan)
    assert stored_plan(tmp_path / "plan.json") == plan and plan.format == FORMAT
    assert stored_plan(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    ("was", "now", "hint"),
    [
        (None, "s3://lake/tables", "leave `tables` (DELTAWORKS_TABLES) unset for this home"),
        ("s3://lake/tables", None, "tables = 's3://lake/tables' in deltaworks.toml"),
        ("s3://lake/tables", "s3://lake/others", "tables = 's3://lake/tables' in deltaworks.toml"),
    ],
)
def test_a_checkpoint_whose_tables_are_elsewhere_is_refused(
    tmp_path: Path, was: str | None, now: str | None, hint: str
) -> None:
    path, fingerprint = tmp_path / "plan.json", orders.plan().fingerprint()
    first = open_plan(path, "orders", fingerprint, {"t": 1}, (1,), 1, tables=was)
    before = contents(tmp_path)

    starts: list[Callable[[], object]] = [
        lambda: open_plan(path, "orders", fingerprint, {"t": 1}, (1,), 1, tables=now),
        lambda: fitting_plan(path, "orders", fingerprint, {"t": 1}, (1,), now),
    ]
    for start in starts:
        with pytest.raises(IncompatibleCheckpointError) as error:
            start()
        told = str(error.value)
        places = {place: "in the home" if place is None else f"at {place}" for place in (was, now)}
        assert f"The tables of pipeline 'orders' are {places[was]}, but the settings say" in told
        assert f"that they are {places[now]}:" in told
        assert hint in told
    assert contents(tmp_path) == before
    assert open_plan(path, "orders", fingerprint, {"t": 1}, (1,), 1, tables=was) == first


def test_a_checkpoint_of_before_there_were_other_places_has_its_tables_in_the_home(tmp_path: Path) -> None:
    path, plan = tmp_path / "plan.json", plan_of(fingerprint=orders.plan().fingerprint())
    write_plan(path, plan)
    document = json.loads(path.read_text())
    del document["tables"]
    path.write_text(json.dumps(document))

    assert open_plan(path, "orders", plan.fingerprint, {"t": 1}, (1,), 1) == plan


def test_as_many_cores_can_be_used_as_the_widest_stage_has_tasks() -> None:
    builder = StreamsBuilder()
    builder.stream("t", key=str, value=str).group_by(lambda _, v: v, key=str, name="by-v").count(store="counts")
    plan = builder.build()
    assert [usable(plan, (2, 4), cores) for cores in (1, 3, 4, 8)] == [1, 3, 4, 4]


def test_the_tasks_of_a_cycle_take_turns_on_one_core() -> None:
    builder = StreamsBuilder()
    orders, users = (builder.table(name, key=str, value=str, store=name) for name in ("orders", "users"))
    orders.join(users, foreign_key=lambda _, v: v, joiner=lambda a, b: a + b, value=str, name="ref")
    plan = builder.build()
    assert [group.cyclic for group in plan.groups] == [True] and usable(plan, (4,) * len(plan.stages), 8) == 1
