"""What functions that make connectors have in common: values of settings, and names of arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta

from deltaworks.connect.values import Value
from deltaworks.errors import ConfigurationError
from deltaworks.names import hint_of


def given(settings: Mapping[str, Value | None]) -> dict[str, Value]:
    """The settings that have a value."""
    return {name: value for name, value in settings.items() if value is not None}


def listed(items: Iterable[str] | None) -> str | None:
    """Several items as Connect has them; None: there are none.

    Raises:
        TypeError: one text was given instead of a list.
    """
    if isinstance(items, str):
        raise TypeError(f"expected a list of texts, but got {items!r}: write [{items!r}]")
    return ",".join(items or ()) or None


def topics_of(name: str, topics: Iterable[str]) -> str:
    """The topics that a sink reads, as Connect has them.

    Raises:
        ConfigurationError: there are none.
        TypeError: see `listed`.
    """
    if (found := listed(topics)) is None:
        raise ConfigurationError(f"Connector '{name}' reads no topic.", hint='topics=["orders"]')
    return found


def dead_letters_of(topic: str | None, replication: int) -> dict[str, Value]:
    """Settings for a topic of records that fail; none without one."""
    if topic is None:
        return {}
    return {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": topic,
        "errors.deadletterqueue.topic.replication.factor": replication,
        "errors.deadletterqueue.context.headers.enable": True,
    }


def milliseconds(duration: timedelta | None) -> int | None:
    """A duration as settings that end with `.ms` have it."""
    return None if duration is None else round(duration / timedelta(milliseconds=1))


def require_known(names: Iterable[str], known: Collection[str], function: str) -> None:
    """Raises `TypeError` for an argument that a function does not take, with what may have been meant."""
    for name in names:
        if name not in known:
            raise TypeError(f"{function}() has no argument {name!r}: {hint_of(name, known, 'it takes')}")
