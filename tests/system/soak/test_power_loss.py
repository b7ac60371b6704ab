"""Power is lost under a stream: what was not synced is gone, and every row is where it belongs afterwards.

Without Kafka and Spark, which here never lose anything: what deltaworks keeps itself (tables, intents, record of
batches, local stores). `make soak` does the same to everything.
"""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from deltaworks.settings import Settings
from tests.hosts.memory_kafka import MemoryKafka
from tests.system.soak.faulty_disk import Disk
from tests.system.soak.hooks import BOOT
from tests.system.soak.in_process import END, kafka_with_sample
from tests.system.soak.models import Ledger, Matches, Message, Model, compared, rows_of_topic
from tests.system.soak.tables import rows

POINTS = (
    *("task.opened", "delta.after_parquet", "driver.after_tasks", "delta.before_pages"),
    *("driver.after_tables", "driver.end", "no point"),
)
MODELS: dict[str, type[Model]] = {"soak_ledger": Ledger, "soak_matches": Matches}


def run(pipeline: str, disk: Disk, kept: Path, batches: int, seed: int, point: str) -> None:
    """To the kill; at the end of all, to the end."""
    command = [sys.executable, "-m", "tests.system.soak.in_process", pipeline, str(disk.prefixes[0]), str(kept)]
    environment = {**os.environ, **Settings.from_environment().process_environment(), **disk.environment()}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [*command, str(batches), str(seed), point], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == (0 if point == END else -9), done.stderr[-3000:]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("pipeline", MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_twice_after_losses_of_power(pipeline: str, seed: int, tmp_path: Path) -> None:
    folder, rng = tmp_path.resolve(), random.Random(seed)
    disk, kept = Disk((folder / "home",), folder / "disk"), folder / "kept"
    disk.build()
    kept.mkdir()
    disk.prefixes[0].mkdir()
    kafka = kafka_with_sample(pipeline, seed)
    (kept / "kafka").write_bytes(pickle.dumps(kafka))
    for number in range(3):
        run(pipeline, disk, kept, rng.randint(1, 3), 10 * seed + number, rng.choice(POINTS))
        disk.lose_power(rng)
        (kept / BOOT).write_text(f"boot {number}")
    run(pipeline, disk, kept, 0, 0, END)
    kafka = pickle.loads((kept / "kafka").read_bytes())
    assert [result for result in results(MODELS[pipeline](), kafka, disk.prefixes[0] / "tables") if result] == []


def results(model: Model, kafka: MemoryKafka, tables: Path) -> list[str]:
    """What is not as it should be."""
    for topic in model.sources:
        for partition, offset, record in kafka.read(topic):
            model.take(Message(topic, partition, offset, record.key, record.value, record.timestamp_ms))
    found = []
    for each in model.expected():
        if each.kind == "table":
            there = rows(tables, each.name)
        else:
            messages = [Message(each.name, p, o, r.key, r.value, r.timestamp_ms) for p, o, r in kafka.read(each.name)]
            there = Counter(rows_of_topic(each.name, messages))
        result = compared(each, there)
        if not result.equal:
            found.append(f"{result.name}: {result.lost} lost, {result.twice} twice {result.examples}")
    return found
