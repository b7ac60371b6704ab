"""What an alert rule is; those of streams are in `rules.py`, those of connectors in `connector_rules.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from deltaworks.control.incidents import KINDS, Kind

JOB = "deltaworks"
"""Name of the drivers' job in the configuration of Prometheus."""
CONNECTORS_JOB = "deltaworks-connectors"
"""That of `deltaworks metrics --serve`."""
Subject: TypeAlias = Literal["pipeline", "connector", "home"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One alert. Its texts are Prometheus' templates."""

    name: str
    expr: str
    """In PromQL, with one series per subject, or one of the home."""
    severity: Literal["critical", "warning"]
    what: str
    cause: str
    """The likely cause."""
    subject: Subject = "pipeline"
    """What it is about; also the label with the name, of which the home has none."""
    kind: Kind | None = None
    """The incident that it is."""
    question: str = ""
    """Else the heading of its section in the guide."""
    hold: str = "0s"
    """How long it must be so until the alert fires."""
    keep: str = "0s"
    """How long it fires on: a driver that starts again says nothing for a while."""


def name_of(kind: Kind) -> str:
    """The name of the alert of a kind of incident."""
    return "".join(word.capitalize() for word in KINDS[kind].title.split())


def until(kind: Kind, subject: Subject, opens: str, *stays: str) -> str:
    """Fires when it opens, and on while any of the others holds."""
    return "\nor\n".join((opens, *(f"{each}\n{fires(kind, subject)}" for each in stays)))


def fires(kind: Kind, subject: Subject) -> str:
    """What is there for each subject of which the alert of an incident fires."""
    return f'and on ({subject}) ALERTS{{alertname="{name_of(kind)}", alertstate="firing"}}'
