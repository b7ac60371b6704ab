"""Safeguards taken away, one at a time, from a check of one pipeline: each time it must turn red."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable, Iterable

from deltaworks import Pipeline
from deltaworks.control.topics import all_topics
from deltaworks.kafka import admin
from deltaworks.kafka.control_topic import control_topic
from deltaworks.settings import Settings


def begin_anew(settings: Settings, pipeline: Pipeline) -> None:
    """Nothing of an earlier run is there any more: topics, state, tables of the home."""
    admin.delete_topics(settings.cluster, [*all_topics(pipeline, pipeline.plan()), control_topic(pipeline.name)])
    for folder in (settings.pipeline(pipeline.name), settings.tables):
        shutil.rmtree(folder, ignore_errors=True)


def not_missed(
    settings: Settings, pipeline: Pipeline, mutations: Iterable[str], run: Callable[[str], list[str]]
) -> list[str]:
    """The mutations with which a check stays green.

    Args:
        settings: of the home.
        pipeline: the pipeline, of which nothing is left before each run.
        mutations: names of `tests.mutation.MUTATIONS`.
        run: runs the check with a mutation, and says what was wrong.
    """
    green = []
    for mutation in mutations:
        begin_anew(settings, pipeline)
        try:
            said = run(mutation)
        except AssertionError:
            said = [traceback.format_exc(limit=1)]
        print(f"without '{mutation}': {'RED' if said else 'GREEN'}", flush=True)
        green += [] if said else [mutation]
    return green
