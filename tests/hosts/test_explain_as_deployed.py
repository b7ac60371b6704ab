"""Rows that earlier code has written, explained by it: real archives and processes, a broker in memory."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from deltaworks import Pipeline
from deltaworks.control import code
from deltaworks.control.intents import Intents
from deltaworks.files import LocalFiles
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka

REPOSITORY = Path(__file__).parents[2]
JOB = """
from datetime import timedelta

from deltaworks import Pipeline, StreamsBuilder, TimeWindows


def topology(builder: StreamsBuilder) -> None:
    sales = builder.stream("sales", key=str, value=int).map_values(lambda amount: amount * {factor}, value=int)
    sales.to_delta("sales", key="shop", value="amount")
    minutes = TimeWindows(size=timedelta(minutes=1), grace=timedelta(0))
    sales.group_by_key().windowed_by(minutes).reduce(lambda one, other: one + other, store="minutes").to_delta(
        "minutes", key="shop", value="amount"
    )
    if {factor} == 2:
        sales.to_delta("doubled", key="shop", value="amount")


pipeline = Pipeline(name="shops", topology=topology)
"""
IN_MEMORY = """
import os
import pickle

from deltaworks.explain import explaining
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.runtime.history import HistoryReader
from deltaworks.topology.archives import Archives
from tests.hosts.memory_kafka import MemoryBroker

with open(os.environ["KAFKA_IN_MEMORY"], "rb") as file:
    kafka = pickle.load(file)


def history(settings, pipeline, plan):
    archive = ArchiveReader(settings.tables, Archives.of(pipeline.plan()), plan.topics.get)
    return lambda: HistoryReader(kafka.reader, archive, gone=plan.gone)


explaining.Broker = lambda cluster: MemoryBroker(kafka)
explaining.history = history
"""


def written(project: Path, factor: int) -> Pipeline:
    """The pipeline of the project, whose amounts have a factor."""
    file = project / "jobs" / "shops.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(JOB.format(factor=factor))
    spec = importlib.util.spec_from_file_location(f"shops_{factor}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pipeline = module.pipeline
    assert isinstance(pipeline, Pipeline)
    return pipeline


def sold(stream: InProcessStream, minute: int, amount: int) -> None:
    """A batch with one sale."""
    assert stream.kafka is not None
    time_ms = 1_790_000_000_000 - 1_790_000_000_000 % 60_000 + minute * 60_000
    stream.kafka.write("sales", RawRecord(b"north", amount.to_bytes(8, "big"), time_ms))
    stream.run(stream.end())


def ran_with(stream: InProcessStream, digest: str, first: int) -> None:
    """Notes the code of the batches since one, as a driver that runs from an archive does."""
    intents = Intents(LocalFiles(stream.paths.current.intents))
    for batch in intents.batches():
        if batch >= first:
            intents.replace(intents.require(batch), msgspec.structs.replace(intents.require(batch), code=digest))


def deployed_twice(home: Path, project: Path) -> InProcessStream:
    """Two sales with a factor of 2, then two with a factor of 10, each deployed from an archive."""
    settings = replace(Settings.from_environment({}, cwd=REPOSITORY), home=home, project=project)
    pipeline = written(project, 2)
    first = code.archive(settings).digest
    stream = InProcessStream(pipeline, settings, kafka=MemoryKafka())
    sold(stream, 0, 3)
    sold(stream, 0, 4)
    ran_with(stream, first, 0)
    stream.pipeline = written(project, 10)
    stream.plan = stream.pipeline.plan()
    second = code.archive(settings).digest
    assert first != second
    stream.restart()
    begun = stream.batch_id
    sold(stream, 1, 3)
    sold(stream, 2, 4)
    ran_with(stream, second, begun)
    stream.close()
    return stream


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> InProcessStream:
    folder = tmp_path_factory.mktemp("deployed")
    return deployed_twice(folder / "home", folder / "project")


def explained(stream: InProcessStream, beside: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    """What the command says, in a process of its own; a file beside it brings the broker in memory."""
    (beside / "sitecustomize.py").write_text(IN_MEMORY)
    (beside / "tests").symlink_to(REPOSITORY / "tests")
    (beside / "kafka.pickle").write_bytes(pickle.dumps(stream.kafka))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "lib"), str(beside)]),
        "DELTAWORKS_HOME": str(stream.settings.home),
        "DELTAWORKS_PROJECT": str(stream.settings.project),
        "KAFKA_IN_MEMORY": str(beside / "kafka.pickle"),
    }
    command = [sys.executable, "-c", "from deltaworks import cli; cli.main()", "explain", *arguments, "--json"]
    run = subprocess.run(command, cwd=beside, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == code, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_each_row_is_that_of_its_code(stream: InProcessStream) -> None:
    rows = DeltaTable(stream.settings.tables / "sales").to_pyarrow_table().to_pylist()

    assert sorted(row["amount"] for row in rows) == [6, 8, 30, 40]


@pytest.mark.parametrize(
    ("question", "amount"),
    [
        (("sales", "--key", "north", "--source", "sales-0@0"), 6),
        (("minutes", "--key", "north", "--window", "2026-09-21T14:13"), 14),
    ],
)
def test_a_row_of_earlier_code_is_reproduced_by_that_code_only(
    stream: InProcessStream, tmp_path: Path, question: tuple[str, ...], amount: int
) -> None:
    for folder in ("now", "then"):
        (tmp_path / folder).mkdir()
    now = explained(stream, tmp_path / "now", *question, code=1)
    then = explained(stream, tmp_path / "then", *question, "--as-deployed")

    assert now["row"]["amount"] == then["row"]["amount"] == amount
    assert (now["reproduced"], now["found"]["amount"]) == (False, 5 * amount)
    assert (then["reproduced"], then["found"]["amount"]) == (True, amount)


def test_a_table_that_only_earlier_code_writes_is_explained_by_that_code(
    stream: InProcessStream, tmp_path: Path
) -> None:
    found = explained(stream, tmp_path, "doubled", "--key", "north", "--source", "sales-0@1", "--as-deployed")

    assert (found["reproduced"], found["found"]["amount"]) == (True, 8)
