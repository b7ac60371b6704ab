"""`deltaworks dev` ends with Ctrl-C, also when the interrupt comes where Python drops what is raised."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.cli import development
from deltaworks.cli.development import Development
from deltaworks.control import edited
from deltaworks.control.edited import Verdict
from deltaworks.settings import Settings


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Development:
    """Its code fails, so no stream is started."""
    settings = replace(Settings.from_environment(), home=tmp_path)
    monkeypatch.setattr(development, "_LOOK_S", 0.0)
    monkeypatch.setattr(edited, "ask", lambda *_, **__: Verdict(fit="fails", reason="no code"))
    return Development(settings, "orders")


class Finalized:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1_000):  # the interrupt is raised here
            pass


@pytest.mark.timeout(20)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_in_a_finalizer_ends_it(running: Development, monkeypatch: pytest.MonkeyPatch) -> None:
    def refresh(_: Development) -> None:
        Finalized()

    monkeypatch.setattr(Development, "_refresh", refresh)

    running.run(start_over=False)


@pytest.mark.timeout(20)
def test_any_other_interrupt_is_raised_at_once(running: Development, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(Development, "_refresh", lambda _: os.kill(os.getpid(), signal.SIGINT))

    with pytest.raises(KeyboardInterrupt):
        running.run(start_over=False)
    assert signal.getsignal(signal.SIGINT) is before
