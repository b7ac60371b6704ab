"""One file in `jobs/` is all that a new pipeline needs: commands, DAGs, topics, tables, dead letters."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Mapping

from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from deltaworks.control import heartbeat
from tests.integration.own_stack.conftest import NewPipeline
from tests.support.live_stack import read_all

BEGIN_MS = 1_799_999_400_000
"""The start of a window of ten minutes."""
MINUTE_MS = 60_000
LINES = (
    (b"To be or not to be", 0),
    (b"that is the question", 1),
    (b"to boom or not", 2),  # its function raises
    (b"\xff\xfe is no text", 3),  # does not decode
    (b"to be", 11),
)


def produce(stack: NewPipeline, *lines: tuple[bytes, int]) -> None:
    """All to one partition, so that their order is given."""
    producer = Producer({"bootstrap.servers": stack.settings.bootstrap})
    for line, minutes in lines:
        producer.produce(f"{stack.name}-lines", line, partition=0, timestamp=BEGIN_MS + minutes * MINUTE_MS)
    assert producer.flush(30) == 0


def counts(stack: NewPipeline) -> dict[tuple[str, int], int]:
    """By word and by the number of the window."""
    found = {}
    for row in stack.table(f"{stack.name}_counts"):
        start = row["window_start"]
        window = int(start.timestamp() * 1000 - BEGIN_MS) // (10 * MINUTE_MS)  # type: ignore[attr-defined]
        found[str(row["key"]), window] = int(row["value"])  # type: ignore[call-overload]
    return found


def test_the_command_line_knows_it(new_pipeline: NewPipeline) -> None:
    said = new_pipeline.deltaworks("topology", new_pipeline.name)

    assert f"topics: [{new_pipeline.name}-lines]" in said
    assert f"table: {new_pipeline.name}_counts" in said


def test_airflow_has_a_dag_for_it_beside_the_others(new_pipeline: NewPipeline) -> None:
    dags = {dag.dag_id for dag in new_pipeline.airflow.dags()}

    assert {new_pipeline.dag_id, "orders__stream", "streams__reconcile"} <= dags
    assert new_pipeline.airflow.import_errors() == []


def test_nothing_else_in_the_repository_was_changed_for_it(new_pipeline: NewPipeline) -> None:
    mention = subprocess.run(
        ["grep", "-rl", new_pipeline.name, "."], cwd=new_pipeline.project, capture_output=True, text=True, check=False
    ).stdout.split()

    assert [file for file in mention if not file.endswith(".pyc")] == [f"./jobs/{new_pipeline.name}.py"]


def test_deployed_it_has_topics_tables_and_dead_letters_and_stops(new_pipeline: NewPipeline) -> None:
    name, airflow = new_pipeline.name, new_pipeline.airflow

    new_pipeline.deltaworks("deploy", name)
    produce(new_pipeline, *LINES)

    expected = {
        **dict.fromkeys([("or", 0), ("not", 0), ("that", 0), ("is", 0), ("the", 0), ("question", 0)], 1),
        ("to", 0): 2,
        ("be", 0): 2,
        ("to", 1): 1,
        ("be", 1): 1,
    }
    airflow.wait("every word is counted", lambda: counts(new_pipeline) == expected)
    airflow.wait("the bad ones are set aside", lambda: len(new_pipeline.table(f"{name}_dead")) == 2)
    letters = read_all(new_pipeline.settings.bootstrap, f"{name}-dead")
    assert sorted(message.value() or b"" for message in letters) == [b"to boom or not", b"\xff\xfe is no text"]
    words = [message.value() for message in read_all(new_pipeline.settings.bootstrap, f"{name}-words")]
    assert (len(words), words.count(b"to")) == (12, 3)

    (address,) = json.loads(new_pipeline.deltaworks("metrics", "--json")).values()
    assert scraped(address)["dead_letters_total"] == 2
    assert scraped(address)["records_total"] == len(LINES)
    beat = heartbeat.read(new_pipeline.settings.pipeline(name) / "heartbeat.json")
    assert beat is not None and scraped(address)["last_batch"] == beat.batch_id
    labels = ("phase", "stage", "store", "table")
    airflow.wait("Spark has told", lambda: "spark_phase_seconds addBatch" in scraped(address, *labels))
    require_figures(scraped(address, *labels), name, beat)
    assert name in new_pipeline.deltaworks("status")
    assert "drained" in new_pipeline.deltaworks("stop", name)
    assert json.loads(new_pipeline.deltaworks("metrics", "--json")) == {}


def require_figures(found: Mapping[str, float], name: str, beat: heartbeat.Heartbeat) -> None:
    """What tasks, Spark and tables tell is there, and the same in the heartbeat."""
    for phase in ("open", "read", "process", "commit", "keep"):
        assert found[f"task_phase_seconds_sum {phase}"] > 0, phase
    for stage in ("read", "processed", "committed", "visible"):
        assert found[f"latency_seconds_count {stage}"] == len(LINES), stage
    assert found["spark_phase_seconds addBatch"] > 0
    assert found["tasks"] == beat.tasks > 0
    assert found["sent_records_total"] == beat.sent_records >= 12
    assert found[f"table_rows_total {name}_dead"] == beat.tables[f"{name}_dead"].rows == 2
    assert found[f"table_files {name}_counts"] == beat.tables[f"{name}_counts"].files > 0
    assert found[f"table_commit_seconds_total {name}_counts"] > 0
    stores = {key: number for key, number in found.items() if key.startswith("store_entries ")}
    assert sum(stores.values()) == found["state_entries"] == beat.state_entries


def scraped(address: str, *labels: str) -> dict[str, float]:
    """What the driver says of the stream, without labels but these, whose values are behind the name."""
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    return {
        " ".join(
            [each.name.removeprefix("deltaworks_stream_"), *(each.labels[of] for of in labels if of in each.labels)]
        ): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if set(each.labels) - {*labels} == {"pipeline"}
    }
