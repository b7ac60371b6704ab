"""What to write in place of a member that Kafka Streams' classes have and ours have not, or have by another name.

Names that become ours in snake case need no entry. Classes are in `dsl/kafka_names.py`, operators in
`dsl/mistakes.py`.
"""

from __future__ import annotations

import difflib
import linecache
import re
from collections.abc import Callable

_STANDS_FOR = {
    "FixedKeyProcessorContext": "ProcessorContext",
    "ValueTransformerContext": "ProcessorContext",
    "UserContext": "ProcessorContext",
    "KeyValueAccess": "KeyValueStore",
    "LruAccess": "KeyValueStore",
    "TimestampedKeyValueAccess": "TimestampedKeyValueStore",
    "VersionedAccess": "VersionedKeyValueStore",
    "WindowAccess": "WindowStore",
    "TimestampedWindowAccess": "TimestampedWindowStore",
    "SessionAccess": "SessionStore",
}
"""A class of ours -> the public one whose entries it has below."""
_STORES = {
    "key_value": "Stores.key_value('name', key=str, value=int)",
    "timestamped_key_value": "Stores.timestamped_key_value('name', key=str, value=int)",
    "versioned_key_value": "Stores.versioned('name', key=str, value=int, history=timedelta(days=1))",
    "window": "Stores.window('name', key=str, value=int, window_size=..., retention=...)",
    "timestamped_window": "Stores.timestamped_window('name', key=str, value=int, window_size=..., retention=...)",
    "session": "Stores.session('name', key=str, value=int, retention=timedelta(days=1))",
}
"""A kind of store -> its declaration, in place of a supplier and a builder."""
_INSTEAD: dict[str, dict[str, str]] = {
    "Stores": {
        **{f"{how}{kind}_store": call for how in ("persistent_", "in_memory_") for kind, call in _STORES.items()},
        **{f"{kind}_store_builder": call for kind, call in _STORES.items()},
        "lru_map": "Stores.lru('name', key=str, value=int, max_entries=100)",
        "custom_store_builder": "Stores.custom('name', MyStore)",
    },
    "Record": {"timestamp": "timestamp_ms"},
    "FixedKeyRecord": {"timestamp": "timestamp_ms", "with_key": "Processor, which may change keys, in process(...)"},
    "RecordContext": {"timestamp": "timestamp_ms"},
    "VersionedRecord": {
        "timestamp": "timestamp_ms",
        "valid_to": "the timestamp_ms of the next version: a version is valid until then",
    },
    "ValueAndTimestamp": {
        "timestamp": "timestamp_ms",
        "make": "ValueAndTimestamp(value, timestamp_ms)",
        "make_allow_nullable": "ValueAndTimestamp(value, timestamp_ms)",
        "get_value_or_null": "found.value if found is not None else None",
    },
    "Windowed": {"window": "start_ms and end_ms, or start and end as instants"},
    "ProcessorContext": {
        "get_state_store": "state_store('name')",
        "timestamp": "record.timestamp_ms",
        "headers": "record.headers",
        "topic": "record_metadata.topic",
        "partition": "record_metadata.partition",
        "offset": "record_metadata.offset",
        "current_stream_time": "current_stream_time_ms",
        "current_system_time": "current_system_time_ms",
        "application_id": "the name of the pipeline, which you know",
        "metrics": "a metric of your own, in your own code",
        "state_dir": "a store: it is what lasts",
        "key_serde": "the serde that the topology was given",
        "value_serde": "the serde that the topology was given",
    },
    "KeyValueStore": {"close": "nothing: the host closes stores", "flush": "nothing: the host commits stores"},
    "TimestampedKeyValueStore": {
        "get_with_timestamp": "get(key), which has .value and .timestamp_ms",
        "range_with_timestamps": "range(from_key, to_key), whose values have .value and .timestamp_ms",
        "all_with_timestamps": "all(), whose values have .value and .timestamp_ms",
    },
    "WindowStore": {"backward_fetch": "backward_fetch_range(key, from_ms, to_ms)"},
    "TimestampedWindowStore": {
        "backward_fetch": "backward_fetch_range(key, from_ms, to_ms)",
        "fetch_with_timestamp": "fetch(key, start_ms), which has .value and .timestamp_ms",
        "all_with_timestamps": "all(), whose values have .value and .timestamp_ms",
    },
    "PunctuationType": {
        "values": "list(PunctuationType): STREAM_TIME, WALL_CLOCK_TIME",
        "value_of": "PunctuationType['STREAM_TIME']",
    },
    "Response": {"result": "action", "dead_letter_queue_records": "dead_letters"},
    "StoreBuilder": {
        "build": "builder.add_state_store(store); each task builds its own",
        "logging_enabled": "nothing: stores always come back",
        "with_caching_enabled": "Stores.key_value('name', key=str, value=int, caching=True)",
        "with_caching_disabled": "Stores.key_value('name', key=str, value=int, caching=False)",
        "with_logging_enabled": "Stores.key_value('name', key=str, value=int, logging=True)",
        "with_logging_disabled": "Stores.key_value('name', key=str, value=int, logging=False)",
        "log_config": "nothing: there is no topic to configure",
    },
    "Materialized": {
        "as": "store='name', or Materialized('name', ...)",
        "as_": "store='name', or Materialized('name', ...)",
        "with": "Materialized(key=..., value=...), with serdes",
        "with_": "Materialized(key=..., value=...), with serdes",
        "with_key_serde": "Materialized(..., key=...)",
        "with_value_serde": "Materialized(..., value=...)",
        "with_caching_enabled": "Materialized(..., caching=True)",
        "with_caching_disabled": "Materialized(..., caching=False)",
        "with_logging_enabled": "Materialized(...): stores always come back",
        "with_logging_disabled": "Materialized(..., logging=False)",
        "with_retention": "Materialized(..., retention=timedelta(...))",
        "with_store_type": "Materialized(..., in_memory=True)",
        "store_type": "Materialized(..., in_memory=True)",
    },
}
"""Class -> name in snake case -> what to write."""
_EXTRACTOR = "extractor(record, partition_time_ms)"
_OF_ANY_CLASS = {"extract": _EXTRACTOR, "on_invalid_timestamp": _EXTRACTOR} | {
    "equals": "one == other",
    "hash_code": "hash(...)",
    "to_string": "str(...)",
}


def instead(kind: type, name: str) -> str | None:
    """What to write for a member that a class of ours has not: its name here, or a similar one; None: unknown."""
    here = _STANDS_FOR.get(kind.__name__, kind.__name__)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if told := _INSTEAD.get(here, {}).get(snake) or _OF_ANY_CLASS.get(snake):
        return told
    public = [each for each in dir(kind) if not each.startswith("_")]
    near = (
        [snake] if snake in public else difflib.get_close_matches(snake.removeprefix("get_"), public, n=1, cutoff=0.75)
    )
    if not near:
        return None
    return f"{near[0]}(...)" if isinstance(getattr(kind, near[0], None), Callable) else near[0]  # type: ignore[arg-type]


def advice(error: Exception) -> str | None:
    """What to write in place of what failed, if it is a habit of Kafka Streams' authors; asked only after a failure."""
    if isinstance(error, AttributeError) and error.name is not None:
        owner = error.obj if isinstance(error.obj, type) else type(error.obj)
        return instead(owner, error.name) if owner.__module__.startswith("deltaworks.") else None
    if isinstance(error, TypeError) and str(error).endswith("object is not callable"):
        called = _failed_text(error)
        return called.removesuffix("()") + ", without parentheses" if re.fullmatch(r"[\w.]+\.\w+\(\)", called) else None
    return None


def _failed_text(error: Exception) -> str:
    """The expression that failed, if it is on one line of a file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    code = trace.tb_frame.f_code
    line, last, begin, end = list(code.co_positions())[trace.tb_lasti // 2]
    return linecache.getline(code.co_filename, line)[begin:end] if line and line == last else ""
