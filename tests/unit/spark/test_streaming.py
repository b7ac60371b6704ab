"""Why a driver says that its query has ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from deltaworks import Pipeline, StreamsBuilder
from deltaworks.control import fence, topics
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.reporter import SilentReporter
from deltaworks.errors import FencedError, QueryError, TransientError
from deltaworks.settings import Settings
from deltaworks.spark import failures
from deltaworks.spark.streaming import StreamDriver
from tests.unit.spark.memory_bucket import MemoryBucket

CONCURRENT = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 0."


def topology(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=str).to("out")


class Away(MemoryBucket):
    """A store that stops answering."""

    is_away = False

    def read(self, key: str) -> bytes | None:
        if self.is_away:
            raise TransientError("the store does not answer")
        return super().read(key)


@pytest.mark.parametrize("in_store", [False, True])
@pytest.mark.parametrize(("newest", "kind"), [(1, QueryError), (2, FencedError)])
def test_a_driver_whose_successor_spark_finds_first_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: int, kind: type[Exception], in_store: bool
) -> None:
    store = Away()
    settings, nobody = replace(Settings.from_environment({}), home=tmp_path), Any
    pipeline = Pipeline(name="orders", topology=topology)
    paths = PipelinePaths.of(settings, pipeline.name)
    if in_store:
        lasting = store.root("lake/orders", tmp_path / "here")
        paths = replace(paths, lasting=lasting)
        monkeypatch.setattr(fence, "_advance_in_store", lambda path, n, _: path.write_text(f"{n}\n"))
    driver = StreamDriver(pipeline, settings, paths, nobody, 1, SilentReporter(), nobody)  # type: ignore[arg-type]

    def fail(*_: object, **__: object) -> None:
        fence.advance(paths.fence, newest, pipeline.name)
        raise failures.as_error(StreamingQueryException(CONCURRENT))

    monkeypatch.setattr(topics, "prepare", fail)

    with pytest.raises(kind):
        driver.run(until_caught_up=True)


def test_a_driver_that_cannot_ask_whether_it_was_replaced_says_why_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Away()
    settings, nobody = replace(Settings.from_environment({}), home=tmp_path), Any
    pipeline = Pipeline(name="orders", topology=topology)
    paths = replace(PipelinePaths.of(settings, pipeline.name), lasting=store.root("lake/orders", tmp_path / "here"))
    driver = StreamDriver(pipeline, settings, paths, nobody, 1, SilentReporter(), nobody)  # type: ignore[arg-type]

    def fail(*_: object, **__: object) -> None:
        store.is_away = True
        raise failures.as_error(StreamingQueryException(CONCURRENT))

    monkeypatch.setattr(topics, "prepare", fail)

    with pytest.raises(QueryError):
        driver.run(until_caught_up=True)
