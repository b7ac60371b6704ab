"""Small pipelines for the Spark tests; runs one: `python -m tests.spark.pipelines NAME [--until-caught-up]`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

from deltaworks import Asking, Breaker, Http, KStream, Pipeline, StreamsBuilder, TimeWindows, Topic, exits
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings
from tests.support.own_sinks import FolderSink, PostgresSink

SECOND = timedelta(seconds=1)
SINK_FOLDER, SINK_CONNINFO = "DELTAWORKS_TEST_SINK_FOLDER", "DELTAWORKS_TEST_SINK_CONNINFO"
SINK_URL, SINK_PASSWORD = "DELTAWORKS_TEST_SINK_URL", "DELTAWORKS_TEST_SINK_PASSWORD"
SINK_SEARCH = "DELTAWORKS_TEST_SINK_SEARCH"
"""Where the sinks of `sinking` write."""
PRICES_URL = "DELTAWORKS_TEST_PRICES_URL"
"""Whom `pricing` asks."""


def _numbers(builder: StreamsBuilder) -> None:
    builder.stream("numbers", key=str, value=str).map_values(int, value=int).to("doubled")


def _traced_numbers(builder: StreamsBuilder) -> None:
    builder.stream("traced-numbers", key=str, value=str).map_values(int, value=int).to("traced-doubled")


def _counts(builder: StreamsBuilder) -> None:
    _tables(builder.stream("words", key=str, value=str))


def _right_counts(builder: StreamsBuilder) -> None:
    _tables(builder.stream("recounted-words", key=str, value=str))


def _wrong_counts(builder: StreamsBuilder) -> None:
    _tables(builder.stream("recounted-words", key=str, value=str).filter(lambda _, word: word != "a"))


def _lengths(builder: StreamsBuilder) -> None:
    builder.stream("bereft-words", key=str, value=str).map_values(len, value=int).to_delta("lengths")


def _recreated(builder: StreamsBuilder) -> None:
    builder.stream("recreated-words", key=str, value=str).to_delta("recreated_words")


def _told_twice(builder: StreamsBuilder) -> None:
    """Two tables that have to agree."""
    told = builder.stream("told", key=str, value=str)
    told.to_delta("told")
    words = told.group_by(lambda _, word: word, key=str, name="by-told-word")
    words.windowed_by(TimeWindows(size=SECOND, grace=3600 * SECOND)).count(store="told-counts").to_delta("told_counts")


def _sunk_counts(builder: StreamsBuilder) -> None:
    words = builder.stream("sunk-words", key=str, value=str)
    counts = words.group_by(lambda _, word: word, key=str, name="by-sunk-word").count(store="sunk-counts")
    updates = counts.to_stream().map_values(str, value=str)
    updates.sink(FolderSink(os.environ[SINK_FOLDER]), name="files")
    updates.sink(PostgresSink(os.environ[SINK_CONNINFO]), name="database")
    database: dict[str, Any] = {"url": {"env": SINK_URL}, "username": "deltaworks", "password": {"env": SINK_PASSWORD}}
    updates.to_jdbc("sunk_updates", **database, mode="append", create_table=True)
    counts.to_jdbc("sunk_counts", **database, create_table=True)
    counts.to_search("sunk-counts", url={"env": SINK_SEARCH})


def _prices(builder: StreamsBuilder) -> None:
    """Asks a system of the test about each word."""
    asking = Asking(
        timeout=timedelta(milliseconds=300),
        retries=9,
        backoff=timedelta(milliseconds=20),
        breaker=Breaker(failures=3, wait=timedelta(milliseconds=500)),
    )
    system = Http(url=os.environ.get(PRICES_URL, "http://127.0.0.1:9") + "/{value}", answer=int)
    words = builder.stream("priced-words", key=str, value=str)
    priced = words.enrich_from(system, lambda word, price: f"{word}: {price}", value=str, name="prices", asking=asking)
    priced.to_delta("priced")
    priced.to("prices")


def _visits(builder: StreamsBuilder) -> None:
    """A table, a join with it, windows, and counts behind an exchange."""
    users = builder.table("visitors", key=str, value=str, store="visitors")
    users.to_delta("visitors")
    visits = builder.stream("visits", key=str, value=str)
    visits.left_join(users, lambda page, user: f"{page} {user}", value=str).to("named-visits")
    windows = TimeWindows(size=10 * SECOND, grace=3600 * SECOND)
    visits.group_by_key().windowed_by(windows).count(store="visit-counts").to_delta("visit_counts")
    pages = visits.group_by(lambda _, page: page, key=str, name="by-page")
    pages.aggregate(str, lambda _, page, text: text + page, value=str, store="pages").to_delta("pages")


def _asked(builder: StreamsBuilder) -> None:
    """Counts where records are read, and behind an exchange."""
    words = builder.stream("asked-words", key=str, value=str)
    words.group_by_key().count(store="asked-keys")
    words.group_by(lambda _, word: word, key=str, name="asked-by-word").count(store="asked-words")


def _growing(builder: StreamsBuilder) -> None:
    """A table, a join with it, open windows, and counts behind an exchange."""
    users = builder.table("growing-users", key=str, value=str, store="growing-users")
    visits = builder.stream("growing-visits", key=str, value=str)
    visits.left_join(users, lambda page, user: f"{page} {user}", value=str).to("growing-named")
    windows = TimeWindows(size=3600 * SECOND, grace=3600 * SECOND)
    visits.group_by_key().windowed_by(windows).count(store="growing-windows").to_delta("growing_windows")
    visits.group_by(lambda _, page: page, key=str, name="growing-by-page").count(store="growing-pages").to_delta(
        "growing_pages"
    )


def _tables(words: KStream[str, str]) -> None:
    (
        words.group_by(lambda _, word: word, key=str, name="by-word")
        .windowed_by(TimeWindows(size=10 * SECOND, grace=5 * SECOND))
        .count(store="word-counts")
        .to_delta("word_counts")
    )
    words.to_table(store="last-words").to_delta("last_words")


def _started() -> None:
    print("HOOK started", flush=True)


def _stopped(error: BaseException | None) -> None:
    print("HOOK stopped", "orderly" if error is None else "with an error", flush=True)


failing = Pipeline(
    name="failing",
    topology=_numbers,
    topics=(Topic("numbers", 2), Topic("doubled", 2)),
    on_start=_started,
    on_stop=_stopped,
)
traced = Pipeline(
    name="traced", topology=_traced_numbers, topics=(Topic("traced-numbers", 2), Topic("traced-doubled", 2))
)
"""Its batches have traces, and one of its records fails."""
twice = Pipeline(
    name="twice", topology=_told_twice, topics=(Topic("told", 3),), trigger_interval=timedelta(milliseconds=100)
)
counting = Pipeline(
    name="counting",
    topology=_counts,
    topics=(Topic("words", 3),),
    record_cache=False,
    on_start=_started,
    on_stop=_stopped,
)
recounting = replace(counting, name="recounting", topology=_right_counts, topics=(Topic("recounted-words", 3),))
miscounting = replace(recounting, topology=_wrong_counts)
"""What `recounting` was before its code was corrected."""
bereft = replace(failing, name="bereft", topology=_lengths, topics=(Topic("bereft-words", 1),))
"""Its JVM is killed."""
sinking = Pipeline(name="sinking", topology=_sunk_counts, topics=(Topic("sunk-words", 2),), record_cache=False)
"""It has sinks of its own, and its processes are killed."""
pricing = Pipeline(name="pricing", topology=_prices, topics=(Topic("priced-words", 2), Topic("prices", 2)))
"""It asks another system, which is not always there."""
visiting = Pipeline(
    name="visiting",
    topology=_visits,
    topics=(Topic("visitors", 2), Topic("visits", 2), Topic("named-visits", 2)),
    record_cache=False,
)
"""A person's data is erased from its state."""
asked = Pipeline(
    name="asked",
    topology=_asked,
    topics=(Topic("asked-words", 3),),
    trigger_interval=timedelta(milliseconds=200),
)
"""Its stores are read while it runs."""
growing = Pipeline(
    name="growing",
    topology=_growing,
    topics=(Topic("growing-users", 2), Topic("growing-visits", 2), Topic("growing-named", 2)),
    record_cache=False,
)
"""Its topics get more partitions."""
recreated = Pipeline(name="recreated", topology=_recreated, topics=(Topic("recreated-words", 1),))


if __name__ == "__main__":
    from deltaworks.spark.streaming import run
    from deltaworks.traces.tracer import tracing

    pipeline, settings = globals()[sys.argv[1]], Settings.from_environment()
    try:
        with tracing(settings, pipeline, 1) as tracer:
            run(pipeline, settings, until_caught_up="--until-caught-up" in sys.argv, tracer=tracer)
    except DeltaworksError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(exits.code_of(error))
