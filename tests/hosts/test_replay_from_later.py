"""A replay that leaves out what its days do not depend on sends the same; one that leaves out more does not."""

from __future__ import annotations

from typing import Any

import pytest

from deltaworks.topology import lookback
from tests.hosts.replayed_cases import cases
from tests.hosts.replayed_from_later import try_all


def test_replays_that_begin_later_send_what_the_stream_has_sent() -> None:
    tried = try_all(cases(60))

    assert tried.moments > 60 and tried.left_out > 300 and tried.compared > 400
    assert tried.wrong == {}


def test_half_of_what_is_remembered_is_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Any = lookback._remembering
    monkeypatch.setattr(lookback, "_remembering", lambda node, before, ms: whole(node, before, ms // 2))

    assert len(try_all(cases(24)).wrong) >= 2
