"""Replays a stream on Spark, in a process of its own: `python -m tests.spark.replaying HOME [--order POINT=ACTION]...`.

The stream runs in this process before. Prints what was replayed, and fails if it is not what the stream has left.
"""

from __future__ import annotations

import os
import random
import sys
from dataclasses import replace
from pathlib import Path

from deltaworks import Pipeline, StreamsBuilder, TimeWindows
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings
from deltaworks.spark import session
from deltaworks.spark.replay.executors import OnSpark
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import assert_same, replay_host, steps_of
from tests.spark.pipelines import SECOND
from tests.support.fault_hooks import HOOK, VARIABLE


def _words(builder: StreamsBuilder) -> None:
    words = builder.stream("words", key=str, value=str)
    names = builder.global_table("names", key=str, value=str, store="names")
    (
        words.group_by(lambda _, word: word, key=str, name="by-word")
        .windowed_by(TimeWindows(size=10 * SECOND, grace=5 * SECOND))
        .count(store="word-counts")
        .to_delta("word_counts")
    )
    words.join(names, lambda word, name: f"{name}: {word}", selector=lambda key, _: key, value=str).to_delta("said")
    words.to_table(store="last-words").to_delta("last_words")


def _failing(builder: StreamsBuilder) -> None:
    builder.stream("words", key=str, value=str).map_values(int, value=int).to_delta("numbers")


words = Pipeline(name="words", topology=_words, record_cache=False)
failing = Pipeline(name="words", topology=_failing)


def main(home: Path, orders: dict[str, str]) -> None:
    rng = random.Random(7)
    settings = replace(Settings.from_environment(), home=home)
    kafka = MemoryKafka({"words": 3, "names": 2})
    for number in range(3_000):
        kafka.write("words", RawRecord(b"k%d" % (number % 7), b"abcde"[number % 5 :][:1], 1_000_000 + 40 * number))
        if number % 100 == 0:
            kafka.write("names", RawRecord(b"k%d" % (number % 7), b"name %d" % number, 0))
    stream = InProcessStream(words, settings, kafka=kafka)
    stream.run_to_the_end(rng, 120, elsewhere=None)

    os.environ[VARIABLE] = str(home / "faults")
    for folder in ("inject", "done"):
        (home / "faults" / folder).mkdir(parents=True)
    for point, action in orders.items():
        (home / "faults" / "inject" / point).write_text(action)
    spark = session.build(
        "replay", cores=2, partitions=2, driver_memory="700m", scratch=home / "scratch",
        python_path=settings.joined_python_path,
    )  # fmt: skip
    try:
        executor = OnSpark(spark, fault_hook=HOOK)
        steps = steps_of(stream)
        progress = replay_host(stream, home / "replay", max_records=1_000, executor=executor).run(steps)
        assert_same(stream, home / "replay")
        done = sorted(path.name for path in (home / "faults" / "done").iterdir())
        print(f"RESULT {progress.records} records in {progress.chunks} chunks are the same, after {done}")
        try:
            replay_host(stream, home / "other", max_records=1_000, executor=executor, pipeline=failing).run(steps)
        except DeltaworksError as error:
            print(f"RESULT {type(error).__name__}: {error}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(order.split("=") for order in sys.argv[2:] if "=" in order))
