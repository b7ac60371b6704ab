"""A clean place for one run of the orders pipeline on the shared stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.control import topics
from deltaworks.kafka import admin
from deltaworks.kafka.control_topic import control_topic
from deltaworks.settings import Settings
from jobs.orders import pipeline
from tests.support.live_stack import LiveStack


@pytest.fixture
def orders_settings(kafka: LiveStack, tmp_path: Path) -> Iterator[Settings]:
    """Empty topics, a home of its own; other tests use topics of the same names."""
    plan = pipeline.plan()
    topics.prepare(kafka.bootstrap, pipeline, plan, begun=False)
    yield replace(kafka.settings, home=tmp_path / "home")
    admin.delete_topics(kafka.bootstrap, [*topics.all_topics(pipeline, plan), control_topic(pipeline.name)])
