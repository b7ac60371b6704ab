"""Call-outs on the streaming host and in a replay: one answer counts, whatever fails and whatever is said later."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaworks import Asking, Pipeline, StreamsBuilder
from deltaworks.control import jobs
from deltaworks.control.erasures import Forgotten
from deltaworks.erase import erasing, state
from deltaworks.errors import AnswersError, ConfigurationError
from deltaworks.explain import explaining
from deltaworks.explain.question import Question
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.call_outs import Answer
from deltaworks.kernel.records import RecordBatch
from deltaworks.replay.model import ReplayRequest
from deltaworks.replay.plan import require_answers
from deltaworks.runtime.call_outs.books import Book
from deltaworks.runtime.global_tables import Reader
from deltaworks.settings import Settings
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.topics import RawRecord
from deltaworks.topology.persons import Person
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import assert_same, replay_host, run_with_kills, steps_of, tables_of
from tests.hosts.stopping import Stopping
from tests.support.fault_points import WORKER

NOBODY = "postgresql://127.0.0.1:1/nobody"
POINTS = (*WORKER, "answers.before_record", "answers.recorded", "driver.after_tasks", "driver.after_tables")
QUICK = Asking(retries=1, backoff=timedelta(milliseconds=1))


class Exchange:
    """A system that never says the same twice, knows no one whose name ends with 7, and counts its calls."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.asked: list[str] = []

    async def rate(self, word: str) -> int:
        self.asked.append(word)
        if word.endswith("7"):
            raise LookupError("nobody of this name")
        return next(self.numbers)


EXCHANGE = Exchange()


@pytest.fixture(autouse=True)
def exchange() -> Iterator[Exchange]:
    """A new system for each test; functions of a pipeline find it in the module."""
    global EXCHANGE
    EXCHANGE = Exchange()
    yield EXCHANGE


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path / "home")


async def rate(word: str) -> int:
    return await EXCHANGE.rate(word)


def pipeline(asking: Asking = QUICK, *, ask_again: bool = False) -> Pipeline:
    """Asks before and behind state, in a diamond, and again about what was answered."""

    def topology(builder: StreamsBuilder) -> None:
        words = builder.stream("words", key=str, value=str)
        rated = words.map_values_async(rate, name="rates", asking=asking, ask_again=ask_again)
        counts = rated.merge(words.map_values(len)).group_by_key().count(store="counts")
        again = counts.to_stream().map_values_async(
            lambda count: rate(f"c{count}"), value=int, name="again", asking=asking, ask_again=ask_again
        )
        rated.map_values_async(
            lambda number: rate(f"n{number}"), value=int, name="behind", asking=asking, ask_again=ask_again
        ).to_delta("behind")
        again.to("again")
        again.to_delta("again")
        rated.to_delta("rated")

    return Pipeline(name="asking", topology=topology, record_cache=False, on_error="continue")


def words(count: int = 50) -> MemoryKafka:
    kafka = MemoryKafka({"words": 2, "again": 2})
    for number in range(count):
        kafka.write("words", RawRecord(f"k{number % 7}".encode(), f"w{number}".encode(), 1_000 + number))
    return kafka


def streamed(settings: Settings, seed: int, points: tuple[str, ...] = POINTS) -> InProcessStream:
    rng = random.Random(seed)
    stream = InProcessStream(pipeline(), settings, kafka=words())

    def failures(batch_id: int) -> list[str]:
        if batch_id % 4 == 1:
            stream.lose_worker()
        left = sorted({*points} - stream.failed_at)
        first = [point for point in left if point.startswith("answers.")]
        return rng.sample(first or left, min(2, len(first or left)))

    stream.run_to_the_end(rng, 8, failures, elsewhere=None)
    return stream


def diamond(asking: Asking) -> Pipeline:
    """Records with and without an answer, in one order, and state that depends on it."""

    async def length(word: str) -> int:
        if word == "":
            raise LookupError("nothing")
        return len(word)

    def topology(builder: StreamsBuilder) -> None:
        words = builder.stream("words", key=str, value=str)
        lengths = words.map_values_async(length, name="lengths", asking=asking)
        merged = words.map_values(lambda _: 0, value=int).merge(lengths)
        runs = merged.group_by_key().aggregate(str, lambda _, value, run: run + str(value), value=str, store="runs")
        runs.to_stream().map_values_async(len, name="again", asking=asking).to("out")
        merged.map_async(lambda key, value: (key * 2, value), key=str, value=int, name="keys").to("out")

    return Pipeline(name="diamond", topology=topology, record_cache=False, on_error="continue")


WORDS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "x", "yy", "zzz"])), min_size=1, max_size=12)


@hypothesis.settings(max_examples=15, deadline=None)
@given(WORDS, st.integers(0, 99), st.sampled_from([QUICK, replace(QUICK, cache=1)]))
def test_any_cut_and_any_restart_give_what_the_test_driver_gives(
    tmp_path_factory: pytest.TempPathFactory, given_words: list[tuple[str, str]], seed: int, asking: Asking
) -> None:
    pipeline, rng = diamond(asking), random.Random(seed)

    def length(word: str) -> int:
        if word == "":
            raise LookupError("nothing")
        return len(word)

    fakes: dict[str, Callable[..., Any]] = {
        "lengths": length,
        "again": len,
        "keys": lambda key, value: (key * 2, value),
    }
    driver = TopologyTestDriver(pipeline, call_outs=fakes)
    driver.create_input_topic("words").pipe_key_value_list(given_words)
    kafka = MemoryKafka({"words": 1, "out": 1})
    for key, word in given_words:
        kafka.write("words", RawRecord(key.encode(), word.encode(), 0))
    home = tmp_path_factory.mktemp("home")
    stream = InProcessStream(pipeline, replace(Settings.from_environment({}), home=home), kafka=kafka)
    stream.run_to_the_end(rng, 5, lambda _: rng.sample(POINTS, rng.randint(0, 1)), elsewhere=None)
    stream.close()

    assert [(each.key, each.value) for *_, each in kafka.read("out")] == [
        (each.key, each.value) for each in driver.produced["out"]
    ]


@pytest.mark.parametrize("seed", range(3))
def test_topics_and_tables_have_the_same_answers_whatever_fails(settings: Settings, seed: int) -> None:
    stream = streamed(settings, seed)

    assert {"answers.before_record", "answers.recorded", "driver.after_tasks"} <= stream.failed_at
    rows = tables_of(settings.tables, stream.pipeline)
    assert stream.kafka is not None
    sent = sorted(int.from_bytes(record.value or b"") for *_, record in stream.kafka.read("again"))
    assert sent == sorted(row["value"] for row in rows["again"])
    assert len(rows["rated"]) == 45
    stream.close()


def test_replay_has_the_same_answers_and_asks_nobody(settings: Settings, tmp_path: Path) -> None:
    stream = streamed(settings, 5)
    EXCHANGE.asked.clear()
    steps = steps_of(stream)

    run_with_kills(
        tmp_path / "replay",
        lambda: replay_host(stream, tmp_path / "replay", max_records=15),
        steps,
        random.Random(5),
    )

    assert_same(stream, tmp_path / "replay")
    assert EXCHANGE.asked == []
    stream.close()


def test_an_erasure_takes_a_persons_answers_and_replays_do_without(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = Stopping(streamed(settings, 1, points=()))
    stream = stopped.stream
    stream.committer.settled(stream.batch_id - 1)
    stream.committer.publish_cut()
    stopped.stop()
    monkeypatch.setattr(jobs, "load", lambda settings, name: stream.pipeline)
    monkeypatch.setattr(state, "erase", partial(state.erase, read=stopped.read))
    asked = [answer.about for answer in _recorded(stream)]
    EXCHANGE.asked.clear()

    done = erasing.erase(replace(settings, control_url=NOBODY), "asking", Person.of("k3"), by="ada")

    left = [answer.about for answer in _recorded(stream)]
    assert b"k3" in asked and left == [about for about in asked if about != b"k3"]
    assert done.taken["answers of other systems"] == asked.count(b"k3")
    assert stream.kafka is not None
    forgotten = Forgotten.of(stream.paths, stream.plan)
    assert forgotten is not None
    clients = partial(Forgetful, stream.kafka.reader, forgotten)
    replay_host(stream, tmp_path / "replay", max_records=15, clients=clients).run(steps_of(stream))
    found, expected = (tables_of(root, stream.pipeline) for root in (tmp_path / "replay" / "tables", settings.tables))
    assert [row["value"] for row in found["rated"]] == [row["value"] for row in expected["rated"]]
    assert len(found["rated"]) > 30 and EXCHANGE.asked == []
    stream.close()


class Forgetful:
    """`Reader` of Kafka without the records of erased persons."""

    def __init__(self, connect: Callable[[], Reader], forgotten: Forgotten) -> None:
        self._reader, self._forgotten = connect(), forgotten
        self.beginning, self.close = self._reader.beginning, self._reader.close

    def read(self, ranges: list[Range]) -> Iterator[list[RecordBatch]]:
        for portion in self._reader.read(ranges):
            yield [self._forgotten.left(records) for records in portion]


def _recorded(stream: InProcessStream) -> list[Answer]:
    files = sorted(stream.paths.answers.rglob("*.answers"))
    return [answer for file in files for _, answer in msgspec.msgpack.decode(file.read_bytes(), type=Book).answers]


def test_replay_by_time_is_refused_unless_it_asks_again() -> None:
    request = ReplayRequest(pipeline="asking", order="time", requested_by="ada")

    with pytest.raises(ConfigurationError, match=r"rates, again, behind: .* not by time"):
        require_answers(pipeline().plan(), request)
    require_answers(pipeline(ask_again=True).plan(), request)
    require_answers(pipeline().plan(), msgspec.structs.replace(request, order="recorded"))


def test_explaining_is_refused_rather_than_asked(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match="cannot be explained yet: rates, again, behind asks"):
        explaining.explain(settings, pipeline(), Question("rated", ("k1",)))


def test_replay_asks_again_if_the_operator_says_so(settings: Settings, tmp_path: Path) -> None:
    stream = streamed(settings, 1, points=())
    before = tables_of(settings.tables, stream.pipeline)["rated"]
    EXCHANGE.asked.clear()

    replay_host(stream, tmp_path / "replay", max_records=15, pipeline=pipeline(ask_again=True)).run(steps_of(stream))

    after = tables_of(tmp_path / "replay" / "tables", stream.pipeline)["rated"]
    assert len(EXCHANGE.asked) > len(after) == len(before)
    assert after != before
    stream.close()


def test_replay_of_changed_code_refuses_the_answer_to_another_question(settings: Settings, tmp_path: Path) -> None:
    stream = streamed(settings, 1, points=())

    def topology(builder: StreamsBuilder) -> None:
        words = builder.stream("words", key=str, value=str).map_values(str.upper)
        words.map_values_async(rate, name="rates").to_delta("rated")

    changed = Pipeline(name="asking", topology=topology, on_error="continue")
    with pytest.raises(AnswersError, match=r"'rates' asks something about words-.@. that the stream has not asked"):
        replay_host(stream, tmp_path / "replay", max_records=15, pipeline=changed).run(steps_of(stream))
    stream.close()
