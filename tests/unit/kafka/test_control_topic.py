"""How the control topic of a pipeline is made. What a broker does with it: `integration/test_transactional.py`."""

from __future__ import annotations

import pytest

from deltaworks.kafka import control_topic
from deltaworks.kafka.admin import TopicSpec


def test_markers_do_not_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TopicSpec] = []
    monkeypatch.setattr(control_topic, "admin", lambda bootstrap: None)
    monkeypatch.setattr(control_topic, "partition_counts_of", lambda client: {})
    monkeypatch.setattr(control_topic, "create_topics", lambda bootstrap, specs: made.extend(specs))

    control_topic.prepare("kafka:1", "orders", (2, 3))

    (spec,) = made
    assert (spec.name, spec.partitions) == ("__deltaworks-orders-control", 6)
    assert spec.config["cleanup.policy"] == "compact", "what is deleted by age is not there after a long stop"
    assert spec.config["retention.ms"] == "-1"
