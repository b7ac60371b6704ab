"""The list of the methods of Kafka Streams, which `docs/kafka-streams.md` is made from, against its jars."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deltaworks.settings import Settings
from deltaworks.stack.jars import ensure_jars
from tests.coverage_table import java_api


def test_the_list_is_what_the_jars_offer(tmp_path: Path) -> None:
    jars = ensure_jars(replace(Settings.from_environment(), home=tmp_path), java_api.JARS)

    assert java_api.read_jars(jars) == java_api.recorded(), "run `make lock`"
