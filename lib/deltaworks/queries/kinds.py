"""The table of kinds of stores, and how a stream is opened by its name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_never

from deltaworks.control import cluster, jobs
from deltaworks.errors import ConfigurationError, NoSuchStoreError
from deltaworks.queries.answers import KeyMetadata, StoreMetadata
from deltaworks.queries.key_value import KeyValues
from deltaworks.queries.questions import Question, View, ask
from deltaworks.queries.sessions import SessionValues
from deltaworks.queries.stream import PATIENCE, OpenStream
from deltaworks.queries.versioned import VersionedValues
from deltaworks.queries.windows import WindowedValues
from deltaworks.settings import Settings
from deltaworks.topology.stages import StoreSpec


class Stream(OpenStream):
    """A stream with its stores. See `OpenStream`."""

    def store(self, name: str) -> Any:
        """A store, by its kind: `KeyValues`, `WindowedValues`, `SessionValues` or `VersionedValues`.

        Raises:
            NoSuchStoreError: there is none of this name, or nothing but its operator reads it.
        """
        return view_of(self, name)

    def query(self, name: str, question: Question, *, min_batch: int | None = None) -> Any:
        """The answer of a store to a question that is a value (`KeyQuery(key="u-1")`).

        Raises:
            StoreQueryError: the question is not for a store of its kind, or as the store's method.
            StoreUnavailableError: the store cannot be read now.
        """
        return ask(view_of(self, name), question, min_batch)

    def all_metadata(self) -> list[StoreMetadata]:
        """The stores that can be read, by name."""
        return [view_of(self, name).metadata() for name in sorted(self.owned) if _offered(self.owned[name].spec)]

    def all_metadata_for_store(self, name: str) -> StoreMetadata:
        """What a store is; on which of its tasks it is spread."""
        return view_of(self, name).metadata()

    def query_metadata_for_key(self, name: str, key: Any) -> KeyMetadata:
        """Which task has a key of a store."""
        return view_of(self, name).metadata_for_key(key)


def open_stream(name: str, settings: Settings | None = None, *, patience: timedelta = PATIENCE) -> Stream:
    """Opens the stores of a stream of this project, whose code has to be the one that the stream runs.

    Args:
        name: of the pipeline.
        settings: where it is; None: those of the environment.
        patience: see `OpenStream`.

    Raises:
        ConfigurationError: there is no such pipeline, it has never run, or its executors do not serve their stores.
        IncompatibleCheckpointError: the stream runs other code.
    """
    settings = settings or Settings.from_environment()
    if cluster.of(settings, name) is not None and settings.serve_stores == "no":
        raise ConfigurationError(
            f"The tasks of {name!r} run on a cluster, and so their stores are there, where nobody serves them.",
            hint='serve_stores = "executors" in deltaworks.toml, and deploy the stream again',
        )
    return Stream(jobs.load(settings, name), settings, patience=patience)


def view_of(stream: OpenStream, name: str) -> View:
    """A store, by its kind.

    Raises:
        NoSuchStoreError: there is none of this name, or nothing but its operator reads it.
    """
    spec = stream.owner(name).spec
    match spec.kind:
        case "key-value":
            return KeyValues(stream, name)
        case "window":
            return WindowedValues(stream, name)
        case "session":
            return SessionValues(stream, name)
        case "versioned":
            return VersionedValues(stream, name)
        case "suppress" | "subscriptions" | "join-window" | "join-buffer" | "waiting-list":
            raise _not_offered(stream, name, f"it is internal to its operator ({spec.kind})")
        case "lru":
            raise _not_offered(stream, name, "an LRU cache is read by its processor only")
        case "custom":
            raise _not_offered(stream, name, "only the class that you wrote for it reads its bytes")
        case _:
            assert_never(spec.kind)


def _offered(spec: StoreSpec) -> bool:
    return spec.kind in ("key-value", "window", "session", "versioned")


def _not_offered(stream: OpenStream, name: str, why: str) -> NoSuchStoreError:
    others = [other for other, owned in sorted(stream.owned.items()) if _offered(owned.spec)]
    return NoSuchStoreError(
        f"The store {name!r} cannot be read: {why}.",
        hint=f"stores that can: {', '.join(others) or 'none'}",
    )
