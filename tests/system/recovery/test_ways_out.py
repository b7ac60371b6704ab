"""Streams that refuse to go on, as an operator meets them: what is refused, that nothing is written twice by then, and
that the command in the message leads on. On real Kafka and real Spark, by commands alone."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from deltaworks import exits
from deltaworks.control import batches
from deltaworks.control.lineage import claim, new_incarnation, owner
from deltaworks.control.paths import PipelinePaths
from deltaworks.kafka.admin import admin, delete_topics, topic_ids
from deltaworks.kafka.control_topic import control_topic, prepare
from tests.support.live_stack import LiveStack
from tests.system.recovery.homes import WAIT_S, Home

pytestmark = pytest.mark.timeout(900)

JOB = '''"""Passes numbers on, and counts them."""

from deltaworks import Pipeline, StreamsBuilder, Topic


def topology(builder: StreamsBuilder) -> None:
    numbers = builder.stream("NAME-in", key=str, value=int)
    numbers.to("NAME-out")
    numbers.group_by_key().count(store="NAME-counts").to_delta("NAME_counts")


pipeline = Pipeline(name="NAME", topology=topology, topics=(Topic("NAME-in", 1), Topic("NAME-out", 1)))
'''


def home_of(kafka: LiveStack, folder: Path, name: str) -> Home:
    home = Home.of(kafka, folder, name, JOB.replace("NAME", name))
    for topic in (f"{name}-in", f"{name}-out"):
        home.create(topic)
    return home


def test_a_second_home_a_copy_and_the_older_of_two_copies(kafka: LiveStack, tmp_path: Path) -> None:
    first = home_of(kafka, tmp_path, "homes")
    first.send("homes-in", range(10))
    first.catch_up()
    copy, second = first.elsewhere(tmp_path / "copy", copied=True), first.elsewhere(tmp_path / "second")

    refused = second.catch_up(code=exits.LEASE).text
    assert f"belongs to another stream: {first.settings.home} on" in refused
    assert "deltaworks run homes --take-over" in refused
    assert not second.paths.current.plan.exists()

    first.send("homes-in", range(10, 20))
    copy.catch_up()
    assert copy.committed("homes-out") == list(range(20))

    first.send("homes-in", range(20, 30))
    older = first.catch_up(code=exits.CONFIG).text
    assert "holds batch 1 of pipeline 'homes', but this home knows batches up to 0" in older
    assert "Bring back the home that wrote that batch" in older
    found = owner(kafka.bootstrap, "homes")
    assert found is not None and found.home == str(copy.settings.home)  # whose driver would run on

    second.catch_up("--take-over", "--start-offsets", "latest")
    assert str(second.settings.home) in copy.catch_up(code=exits.LEASE).text
    second.send("homes-in", range(30, 40))
    second.catch_up()
    assert second.committed("homes-out") == [*range(20), *range(30, 40)]


def test_a_topic_that_is_recreated_while_the_stream_is_down_and_while_it_runs(kafka: LiveStack, tmp_path: Path) -> None:
    home = home_of(kafka, tmp_path, "recreated")
    with home.running() as stream:
        home.send("recreated-in", range(10))
        stream.until(lambda: len(home.committed("recreated-out")) == 10, "ten are there")
        home.fail_at("driver.before_tasks")
        home.send("recreated-in", range(10, 15))
        stream.ends(-signal.SIGKILL)

    # A batch is open, and the new topic has more records than the old one had.
    home.recreate("recreated-in")
    home.send("recreated-in", range(100, 130))
    refused = home.catch_up(code=exits.CONFIG)
    assert "The topic 'recreated-in' was deleted and recreated" in refused.text
    assert refused.command == ["accept", "recreated", "--new-topic", "recreated-in"]
    assert home.committed("recreated-out") == list(range(10))

    assert "will read recreated-in from its beginning" in home.deltaworks(*refused.command).text
    with home.running() as stream:
        stream.until(lambda: len(home.committed("recreated-out")) == 40, "the new topic is read")
        assert home.committed("recreated-out") == [*range(10), *range(100, 130)]
        home.recreate("recreated-in")
        refused = stream.ends(exits.CONFIG)
    assert refused.command == ["accept", "recreated", "--new-topic", "recreated-in"]
    home.deltaworks(*refused.command)

    home.send("recreated-in", range(200, 205))
    home.catch_up()
    assert "was not recreated" in home.deltaworks(*refused.command, code=exits.CONFIG).text
    assert home.committed("recreated-out") == [*range(10), *range(100, 130), *range(200, 205)]

    paths = PipelinePaths.of(home.settings, "recreated")
    read = batches.topics_read(batches.read(paths.batches))
    assert read.ids == topic_ids(admin(kafka.bootstrap), ["recreated-in"]) and read.recreated.keys() == {"recreated-in"}


def test_records_that_retention_has_removed_unread(kafka: LiveStack, tmp_path: Path) -> None:
    home = home_of(kafka, tmp_path, "removed")
    home.send("removed-in", range(5))
    home.catch_up()
    home.send("removed-in", range(5, 15))
    client = admin(kafka.bootstrap)
    for removed in client.delete_records([TopicPartition("removed-in", 0, 8)]).values():
        removed.result()

    refused = home.catch_up(code=exits.CONFIG)
    assert "retention or somebody has removed the offsets 5 to 7" in refused.text
    assert refused.command == ["accept", "removed", "--lost-records"]
    assert home.committed("removed-out") == list(range(5))

    assert "will read removed-in-0 from offset 8" in home.deltaworks(*refused.command).text
    home.catch_up()
    assert home.committed("removed-out") == [*range(5), *range(8, 15)]


HUNGRY = '''"""Passes numbers on, as far as there is memory for them."""

from pathlib import Path

from deltaworks import DeadLetters, Pipeline, StreamsBuilder, Topic


def through(number: int) -> int:
    hungry = Path("HUNGRY")
    if hungry.exists() and hungry.read_text() == str(number):
        bytearray(1 << 62)
    return number


def topology(builder: StreamsBuilder) -> None:
    builder.stream("memory-in", key=str, value=int).map_values(through, value=int).to("memory-out")


pipeline = Pipeline(
    name="memory",
    topology=topology,
    topics=(Topic("memory-in", 2), Topic("memory-out", 2)),
    on_error="continue",
    dead_letters=DeadLetters(topic="memory-dead"),
)
'''


def test_a_batch_that_has_no_room_in_memory_is_cut_or_runs_in_slices(kafka: LiveStack, tmp_path: Path) -> None:
    hungry = tmp_path / "hungry"
    home = Home.of(kafka, tmp_path, "memory", HUNGRY.replace("HUNGRY", str(hungry)))
    for topic in ("memory-in", "memory-out"):
        home.create(topic, partitions=2)

    # Nothing of the batch is committed: it is cut in two.
    hungry.write_text("0")
    home.send("memory-in", range(10), 0)
    home.send("memory-in", range(10, 20), 1)
    assert "batch 0 was too large for memory or time" in home.catch_up(code=exits.INTERNAL).text
    assert records_of(home, 0) == 20
    assert home.committed("memory-out") == []
    hungry.unlink()
    assert "batch 0 is too large: cut to 10 records" in home.catch_up().text
    assert (records_of(home, 0), records_of(home, 1)) == (10, 10)
    assert sorted(home.committed("memory-out")) == list(range(20))

    # The task of the first partition has committed: the batch stays as it is.
    hungry.write_text("35")
    home.send("memory-in", range(20, 30), 0)
    home.send("memory-in", range(30, 40), 1)
    home.catch_up(code=exits.INTERNAL)
    before = home.intents.require(2)
    assert sorted(home.committed("memory-out")) == list(range(30))
    hungry.unlink()
    assert "batch 2 is too large and durable in part: it runs in slices" in home.catch_up().text
    assert home.intents.require(2) == before
    assert records_of(home, 2) == 20
    assert sorted(home.committed("memory-out")) == list(range(40))
    assert home.committed("memory-dead") == []


def records_of(home: Home, batch: int) -> int:
    """What its intent says."""
    return sum(each.stop - each.start for each in home.intents.require(batch).ranges)


def test_a_control_topic_that_is_deleted(kafka: LiveStack, tmp_path: Path) -> None:
    home, control = home_of(kafka, tmp_path, "control"), control_topic("control")
    home.send("control-in", range(10))
    home.catch_up()

    delete_topics(kafka.bootstrap, [control])
    with home.running() as stream:
        stream.until(lambda: f"the topic {control} was recreated; no batch was open" in stream.text, "it goes on")
        home.send("control-in", range(10, 20))
        stream.until(lambda: len(home.committed("control-out")) == 20, "twenty are there")
        delete_topics(kafka.bootstrap, [control])
        home.send("control-in", range(20, 25))
        assert "There is no partition __deltaworks-control-control-1" in stream.ends(exits.CONFIG).text
    refused = home.catch_up(code=exits.CONFIG).text
    assert "which tasks have committed their records of batch 2, which is open" in refused
    assert f"start over with a new checkpoint: move the pipeline's folder ({home.paths.root}) and its tables" in refused
    assert home.committed("control-out") == list(range(20))


def test_a_deployment_takes_over(kafka: LiveStack, postgres: LiveStack, tmp_path: Path) -> None:
    home = home_of(kafka, tmp_path, "deployed")
    prepare(kafka.bootstrap, "deployed", (1,))
    claim(kafka.bootstrap, "deployed", "another", new_incarnation(), generation=7, home="/that/is/gone")
    home.send("deployed-in", range(10))

    refused = home.deltaworks("deploy", "deployed", code=exits.LEASE).text
    assert "belongs to another stream: /that/is/gone on" in refused
    assert "--take-over" in refused
    try:
        home.deltaworks("deploy", "deployed", "--take-over")
        until(lambda: len(home.committed("deployed-out")) == 10, "all are there")
    finally:
        home.deltaworks("stop", "deployed", "--timeout", "20")
    found = owner(kafka.bootstrap, "deployed")
    assert found is not None and found.home == str(home.settings.home)
    assert home.committed("deployed-out") == list(range(10))


def until(fact: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not fact():
        assert time.monotonic() < end, f"{what}: not in {WAIT_S:.0f} s"
        time.sleep(0.1)
