"""What Connect's REST interface says; fields that are not needed are left out."""

from __future__ import annotations

from typing import Any

import msgspec


class Root(msgspec.Struct, frozen=True):
    """A worker, as `GET /` describes it."""

    kafka_cluster_id: str
    version: str = ""


class Info(msgspec.Struct, frozen=True):
    """A connector, as `GET /connectors/NAME` describes it."""

    name: str
    config: dict[str, str | None]

    @property
    def texts(self) -> dict[str, str]:
        """All settings; those without a value are empty."""
        return {setting: "" if value is None else value for setting, value in self.config.items()}


class Listed(msgspec.Struct, frozen=True):
    """A connector of `GET /connectors?expand=info&expand=status`."""

    info: Info | None = None
    status: Status | None = None


class Running(msgspec.Struct, frozen=True):
    """The state of the connector itself: it makes tasks, and does nothing else."""

    state: str
    worker_id: str = ""
    trace: str | None = None


class Task(msgspec.Struct, frozen=True):
    """The state of a task."""

    id: int
    state: str
    worker_id: str = ""
    trace: str | None = None


class Status(msgspec.Struct, frozen=True):
    """A connector and its tasks."""

    name: str
    connector: Running
    tasks: list[Task] = []
    type: str = "unknown"


class Plugin(msgspec.Struct, frozen=True):
    """A class that a worker has."""

    class_: str = msgspec.field(name="class")
    type: str = "connector"
    version: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What `connector.class` may be for it: in full, the last part, and that without `Connector`."""
        simple = self.class_.rpartition(".")[2]
        return self.class_, simple, simple.removesuffix("Connector")


class Definition(msgspec.Struct, frozen=True):
    """What a class says of one of its settings."""

    name: str
    type: str = "STRING"


class SettingValue(msgspec.Struct, frozen=True):
    """What a worker says of the value of a setting; it may be the secret that a reference leads to."""

    name: str
    value: Any = None
    errors: list[str] = []

    def __repr__(self) -> str:
        return f"SettingValue({self.name!r}, ...)"


class ValidatedSetting(msgspec.Struct, frozen=True):
    """A setting; the definition is null if the class has none of that name."""

    value: SettingValue
    definition: Definition | None = None


class Validated(msgspec.Struct, frozen=True):
    """What `PUT /connector-plugins/CLASS/config/validate` says."""

    name: str
    error_count: int
    configs: list[ValidatedSetting] = []


class Offset(msgspec.Struct, frozen=True):
    """How far a connector is: of a source what it says itself, of a sink a topic, a partition and an offset."""

    partition: dict[str, Any]
    offset: dict[str, Any] | None = None


class Offsets(msgspec.Struct, frozen=True):
    """`GET /connectors/NAME/offsets`"""

    offsets: list[Offset]


class UsedTopics(msgspec.Struct, frozen=True):
    """The topics of a connector in `GET /connectors/NAME/topics`"""

    topics: list[str]


class Failure(msgspec.Struct, frozen=True):
    """What a worker says of a request that it refuses."""

    message: str
    error_code: int = 0
