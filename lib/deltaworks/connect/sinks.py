"""What the functions have in common that make sinks: their arguments, and what these say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from deltaworks.connect.chains import Transform
from deltaworks.connect.connector import Connector, OnDrift
from deltaworks.connect.converters import Converter, require_one_way
from deltaworks.connect.options import dead_letters_of, given, require_known, topics_of
from deltaworks.connect.published import require_published
from deltaworks.connect.secrets import Reference
from deltaworks.connect.values import Value
from deltaworks.topology.alerts import USUAL


class SinkOptions(TypedDict, total=False):
    """What all sinks of systems take besides their own arguments."""

    read_committed: bool
    """Whether records of transactions that were aborted are left out (yes)."""
    dead_letters: str | None
    """The topic for records that fail, with the error in headers; None, the default: the first one ends the task."""
    dead_letters_replication: int
    """Replicas of that topic, if it has to be created (3)."""
    dead_letters_alert: int | None
    """This many dead letters within an hour are an incident (1); None: never."""
    tasks_max: int
    """How many tasks at most (1); more than the topics have partitions are of no use."""
    transforms: Sequence[Transform]
    """What happens to each record, in this order; see `Transform`."""
    key_converter: Converter | None
    """How keys are bytes in Kafka, as that of `Connector`."""
    value_converter: Converter | None
    """Likewise for values."""
    config: Mapping[str, Value] | None
    """Further settings of the connector, which win over what the function sets."""
    secrets: Mapping[str, Reference] | None
    """Further secrets, as those of `Connector`."""
    on_drift: OnDrift
    """As that of `Connector`."""
    plugin_version: str | None
    """Likewise."""


def sink(
    function: str,
    name: str,
    class_: str,
    topics: Iterable[str],
    own: Mapping[str, Value | None],
    options: SinkOptions,
    *,
    secrets: Mapping[str, Reference | None],
    plain_json: bool = False,
    published: frozenset[str] | None = None,
) -> Connector:
    """A connector that reads topics.

    Args:
        function: who makes it, for errors.
        name: of the connector.
        class_: its class.
        topics: those that it reads.
        own: settings of the function; None: it is not set.
        options: what it was given besides.
        secrets: of the function; None: there is none.
        plain_json: keys are texts, and values JSON without a schema.
        published: settings that the class knows, if no worker can be asked; None: one can.

    Raises:
        ConfigurationError: a value or a reference cannot be used, there is no topic, or nothing defines a setting.
        TypeError: an argument that there is not.
    """
    require_known(options, SinkOptions.__annotations__, function)
    key, value = options.get("key_converter"), options.get("value_converter")
    require_one_way(name, plain_json, key, value)
    settings = {
        "topics": topics_of(name, topics),
        **given(own),
        **({"consumer.override.isolation.level": "read_committed"} if options.get("read_committed", True) else {}),
        **dead_letters_of(options.get("dead_letters"), options.get("dead_letters_replication", 3)),
        **(options.get("config") or {}),
    }
    hidden = {setting: each for setting, each in secrets.items() if each is not None} | dict(
        options.get("secrets") or {}
    )
    if published is not None:
        require_published(name, class_, published, (*settings, *hidden))
    return Connector(
        name=name,
        class_=class_,
        config=settings,
        tasks_max=options.get("tasks_max", 1),
        secrets=hidden,
        on_drift=options.get("on_drift", "show"),
        plugin_version=options.get("plugin_version"),
        dead_letters_alert=options.get("dead_letters_alert", USUAL.dead_letters),
        transforms=options.get("transforms", ()),
        key_converter="string" if plain_json else key,
        value_converter="json" if plain_json else value,
    )
