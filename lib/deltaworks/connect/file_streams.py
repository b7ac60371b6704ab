"""Kafka's connectors of files, line by line: for trying out, and for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from deltaworks.connect.chains import Transform, listed
from deltaworks.connect.connector import Connector, OnDrift
from deltaworks.connect.converters import Converter
from deltaworks.connect.options import dead_letters_of, given, topics_of
from deltaworks.connect.transforms import require_source
from deltaworks.connect.values import Value
from deltaworks.topology.alerts import USUAL

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


def FileSource(
    *,
    name: str,
    file: str,
    topic: str,
    batch_size: int | None = None,
    config: Mapping[str, Value] | None = None,
    transforms: Sequence[Transform] = (),
    key_converter: Converter | None = None,
    value_converter: Converter | None = "string",
    on_drift: OnDrift = "show",
) -> Connector:
    """A connector that writes each line of a file to a topic, as text, and waits for more lines.

    Args:
        name: of the connector and of its file in `jobs/connectors`.
        file: its path on the worker.
        topic: where lines go.
        batch_size: lines that are handed on together, at most.
        config: further settings, which win over what the arguments say.
        transforms: what happens to each record, in this order; see `Transform`.
        key_converter: how keys are bytes in Kafka, as that of `Connector`.
        value_converter: likewise for values.
        on_drift: as that of `Connector`.

    Raises:
        ConfigurationError: a value cannot be used.
    """
    own = {"file": file, "topic": topic, "batch.size": batch_size}
    require_source(name, listed(name, transforms), has_timestamps=True)
    return Connector(
        name=name,
        class_=FILE_SOURCE,
        config={**given(own), **(config or {})},
        transforms=transforms,
        key_converter=key_converter,
        value_converter=value_converter,
        on_drift=on_drift,
    )


def FileSink(
    *,
    name: str,
    file: str,
    topics: Iterable[str],
    dead_letters: str | None = None,
    dead_letters_replication: int = 3,
    dead_letters_alert: int | None = USUAL.dead_letters,
    config: Mapping[str, Value] | None = None,
    transforms: Sequence[Transform] = (),
    key_converter: Converter | None = None,
    value_converter: Converter | None = "string",
    on_drift: OnDrift = "show",
) -> Connector:
    """A connector that appends the value of each record to a file, as text.

    Args:
        name: of the connector and of its file in `jobs/connectors`.
        file: its path on the worker.
        topics: those that it reads.
        dead_letters: the topic for records that fail, with the error in headers; None: the first one ends the task.
        dead_letters_replication: replicas of that topic, if it has to be created.
        dead_letters_alert: this many dead letters within an hour are an incident; None: never.
        config: further settings, which win over what the arguments say.
        transforms: what happens to each record, in this order; see `Transform`.
        key_converter: how keys are bytes in Kafka, as that of `Connector`.
        value_converter: likewise for values.
        on_drift: as that of `Connector`.

    Raises:
        ConfigurationError: a value cannot be used, or there is no topic.
    """
    own: dict[str, Value] = {
        "file": file,
        "topics": topics_of(name, topics),
        **dead_letters_of(dead_letters, dead_letters_replication),
    }
    return Connector(
        name=name,
        class_=FILE_SINK,
        config={**own, **(config or {})},
        dead_letters_alert=dead_letters_alert,
        transforms=transforms,
        key_converter=key_converter,
        value_converter=value_converter,
        on_drift=on_drift,
    )
