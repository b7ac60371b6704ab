"""Which topics and tables Airflow's OpenLineage provider hears of, and that nothing of it is needed otherwise."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from deltaworks.airflow import openlineage
from deltaworks.airflow.batch import BatchOperator
from deltaworks.airflow.openlineage import Data
from deltaworks.airflow.quality import CheckOperator
from deltaworks.airflow.replay_operators import PublishOperator
from deltaworks.airflow.supervise import SuperviseOperator
from deltaworks.control.paths import PipelinePaths
from deltaworks.settings import Settings
from tests.unit.airflow import openlineage_runs
from tests.unit.airflow.replays import planned, project_settings, write_publication

NAME = "wordcount"
KAFKA = "kafka://kafka-1:9092"
PROVIDER = pytest.mark.skipif(
    find_spec("airflow.providers.openlineage") is None, reason="`make check-versions` has the OpenLineage provider"
)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("DELTAWORKS_BOOTSTRAP", "kafka-1:9092,kafka-2:9092")
    return replace(project_settings(tmp_path, monkeypatch), bootstrap="kafka-1:9092,kafka-2:9092")


def names(data: tuple[Data, ...], settings: Settings) -> list[str]:
    """Topics, and tables as folders of the home."""
    return [f"{each.namespace} {each.name.removeprefix(f'{settings.tables}/')}" for each in data]


def test_a_stream_reads_topics_and_writes_topics_and_tables(settings: Settings) -> None:
    flow = openlineage.of_stream(settings, NAME)

    assert names(flow.inputs, settings) == [f"{KAFKA} wordcount-lines"]
    assert f"{KAFKA} wordcount-counts" in names(flow.outputs, settings)
    assert "file wordcount_hours" in names(flow.outputs, settings)
    assert all(Path(each.name).is_absolute() for each in flow.outputs if each.namespace == "file")


def test_a_table_has_its_columns_with_types_and_meanings(settings: Settings) -> None:
    tables = {Path(each.name).name: each for each in openlineage.of_checks(settings, NAME).inputs}

    columns = {name: (kind, meaning) for name, kind, meaning in tables["wordcount_hours"].columns}
    assert columns["window_start"][0] == "timestamp"
    assert columns["window_start"][1]
    assert columns["count"][0] == "long"


def test_a_replay_writes_what_it_has_published(settings: Settings) -> None:
    paths = planned(settings, NAME, "r")
    tables = ("wordcount_counts", "wordcount_hours")

    before = openlineage.of_publication(settings, NAME, "r", tables)
    write_publication(paths, "r", "wordcount_hours")
    after = openlineage.of_publication(settings, NAME, "r", tables)

    assert (names(before.inputs, settings), before.outputs) == ([f"{KAFKA} wordcount-lines"], ())
    assert names(after.outputs, settings) == ["file wordcount_hours"]
    own = PipelinePaths.of(settings, NAME)
    own.handovers.mkdir()
    own.handover("h").write_text("{}")
    handed_over = openlineage.of_publication(settings, NAME, "h", tables)
    assert names(handed_over.outputs, settings) == [f"file {table}" for table in tables]


def test_a_batch_job_reads_tables_and_writes_one(settings: Settings) -> None:
    flow = openlineage.of_batch(settings, "daily_sales")

    assert names(flow.outputs, settings) == ["file daily_sales"]
    assert "file enriched_orders" in names(flow.inputs, settings)
    assert all(each.columns for each in (*flow.inputs, *flow.outputs))


@PROVIDER
def test_operators_tell_the_provider(settings: Settings) -> None:
    stream = SuperviseOperator(task_id="supervise", pipeline=NAME, generation=1)
    batch = BatchOperator(task_id="compute", job="daily_sales", pipelines=["orders"])
    check = CheckOperator(task_id="check", pipeline=NAME)
    publish = PublishOperator(task_id="publish", pipeline=NAME, replay="r")

    for operator in (stream, batch, check, publish):
        told = operator.get_openlineage_facets_on_start()
        assert told.inputs
        assert bool(told.outputs) is (operator in (stream, batch))
    (table,) = batch.get_openlineage_facets_on_start().outputs
    assert "day" in [field.name for field in table.facets["schema"].fields]


@PROVIDER
def test_a_publication_is_in_the_providers_events() -> None:
    events = openlineage_runs.emitted()

    begun, ended = events["publish START"], events["publish COMPLETE"]
    assert begun.inputs == ended.inputs == [("kafka://127.0.0.1:19092", "wordcount-lines")]
    assert begun.outputs == {}
    assert list(ended.outputs) == ["file wordcount_hours"]
    assert "window_start" in ended.outputs["file wordcount_hours"]
