"""Orders under real Airflow while what is around them is killed; `make check-heal` does it at full length."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deltaworks.control import actions, registry, topics
from deltaworks.kafka import admin
from deltaworks.kafka.control_topic import control_topic
from deltaworks.settings import Settings
from jobs.orders import pipeline
from tests.support.live_stack import LiveStack
from tests.system.healing.platform_under_kills import PlatformUnderKills, different
from tests.system.sample_data import flowing


@pytest.fixture
def settings(platform: LiveStack) -> Iterator[Settings]:
    """Empty topics; other tests use topics of the same names."""
    plan = pipeline.plan()
    topics.prepare(platform.bootstrap, pipeline, plan, begun=False)
    yield platform.settings
    actions.stop(platform.settings, pipeline.name, requested_by="the end of the test")
    registry.close()
    admin.delete_topics(platform.bootstrap, [*topics.all_topics(pipeline, plan), control_topic(pipeline.name)])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_stream_survives_its_surroundings_and_is_brought_back_from_death(settings: Settings) -> None:
    with PlatformUnderKills(settings) as platform:
        with flowing(settings, rate=60.0):
            platform.deploy()
            for component in ("airflow-scheduler", "airflow-triggerer", "supervisor", "postgres"):
                platform.kill(component)
            platform.kill_driver("supervisor")
            platform.deploy_twice_at_once()
        assert different(platform.settle()) == []
        platform.stop()
        assert different(platform.compare()) == []
        assert platform.generation == 4, "one deployment, one restart, two deployments at once"
