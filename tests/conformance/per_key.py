"""What of a case does not depend on how its inputs are cut into micro-batches.

Per topic and key the records in order, per node what it peeked, the stores at the end, the step that failed. Left out
are `describe`, metrics, in which step something came out, and the offsets of records behind an exchange, which differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deltaworks import Plan
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.kernel.stores.build import Store
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.kernel.stores.lru import LruStore
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.session import SessionStore
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.stores.versioned import VersionedStore
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.kernel.task import Task
from deltaworks.testing import TestKeyValueStore, TestSessionStore, TestVersionedStore, TestWindowStore
from deltaworks.testing.capture import Capture, Topics
from deltaworks.testing.memory_tables import TablesInMemory
from deltaworks.topology.stages import Stage
from tests.conformance.compare import header_shown, rows_shown, text_shown
from tests.conformance.cuts import Cut
from tests.conformance.data import without_expectations
from tests.conformance.hosts import Entries, Observed
from tests.conformance.outputs import Row, output_row, store_names, store_rows
from tests.conformance.run import run_case

Case = dict[str, Any]
PerKey = dict[str, Any]


def expected_per_key(case: Case) -> PerKey:
    """What Kafka Streams did."""
    return _per_key(case["expected"])


def expected_on_hosts(case: Case) -> PerKey:
    """What hosts have to do: the same, but for two things that only Kafka Streams' test driver does (see `run_case`).

    Where the test driver without them differs from the recording, its results count.
    """
    as_recorded = expected_per_key(case)
    if not (cached(case) or any("processor" in node for node in case["spec"]["nodes"])):
        return as_recorded
    plain = without_expectations(case)
    found = _per_key(run_case(plain, as_kafka_driver=False))
    if "stores" in found:
        found["stores"] = {name: rows for name, rows in found["stores"].items() if name in as_recorded["stores"]}
    return found


def cached(case: Case) -> bool:
    """It has a record cache."""
    return bool(case.get("config", {}).get("cache_max_bytes", 0) > 0)


def observed_per_key(case: Case, plan: Plan, cut: Cut, observed: Observed) -> PerKey:
    """What a host did; what it does not show is not there."""
    rows = [output_row(plan, topic, record) for topic, records in observed.topics.items() for record in records]
    error = observed.error
    failed = None if error is None else cut.steps[error.batch_id][0].step
    found: PerKey = {"outputs": _outputs(rows), "failed": failed}
    if observed.peeked is not None:
        found["peeked"] = _peeked(observed.peeked)
    if error is None:
        found["stores"] = {name: rows_shown(rows) for name, rows in stores_of(case, plan, observed).items()}
    return found


def _per_key(results: Mapping[str, Any]) -> PerKey:
    error = results.get("error")
    found: PerKey = {
        "outputs": _outputs(results.get("outputs", ())),
        "peeked": _peeked(results.get("peeked", ())),
        "failed": None if error is None else error["after_input"],
    }
    if error is None:
        found["stores"] = {name: rows_shown(rows) for name, rows in results.get("stores", {}).items()}
    return found


def _outputs(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        keys = found.setdefault(row["topic"], {})
        headers = _without_exchange_offset([header_shown(header) for header in row.get("headers", ())])
        keys.setdefault(text_shown(row["key"]), []).append(text_shown([row["value"], row["timestamp"], headers]))
    return found


def _without_exchange_offset(headers: list[list[Any]]) -> list[list[Any]]:
    """A dead letter says where it was; after an exchange the offset is none of Kafka's."""
    hopped = any(header[0] == "__streams.errors.topic" and str(header[1]).startswith("oracle-") for header in headers)
    return [header for header in headers if not (hopped and header[0] == "__streams.errors.offset")]


def _peeked(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["node"], []).append(text_shown([row["key"], row["value"]]))
    return found


def stores_of(case: Case, plan: Plan, observed: Observed) -> dict[str, list[Row]]:
    """The stores that the case shows, read back from their bytes by tasks of their own."""
    shown = set(store_names(case))
    found: dict[str, list[Row]] = {}
    if observed.global_stores is not None:
        for stage in plan.global_stages:
            _add_rows(case, _task(plan, stage, 0, observed.global_stores), shown, found)
    tasks = [(stage, task) for stage in plan.stages for task in _tasks(stage, observed)]
    for stage, task in tasks:
        _add_rows(case, _task(plan, stage, task, observed.stores.get((stage.index, task), {})), shown, found)
    return found


def _tasks(stage: Stage, observed: Observed) -> list[int]:
    return sorted({task for index, task in observed.stores if index == stage.index} | {0})


def _add_rows(case: Case, task: Task, shown: set[str], found: dict[str, list[Row]]) -> None:
    for name in shown & task.stores.keys():
        found.setdefault(name, []).extend(store_rows(case, _readable(task.stores[name], task.access(name))))


def _task(plan: Plan, stage: Stage, number: int, contents: Mapping[str, Entries]) -> Task:
    state = MemoryState()
    state.apply({name: StoreChanges(list(entries)) for name, entries in contents.items()})
    is_global = any(stage is each for each in plan.global_stages)
    global_tasks = [] if is_global else [_task(plan, each, 0, {}) for each in plan.global_stages]
    return Task(
        stage,
        number,
        state=state,
        collector=Capture(Topics(), TablesInMemory(plan.tables), None),
        errors=ErrorPolicy(),
        exchange_partitions=dict.fromkeys(stage.exchanges_out, 1),
        global_stores={name: store for task in global_tasks for name, store in task.stores.items()},
    )


def _readable(store: Store, access: Any) -> Any:
    match store:
        case KeyValueStore() | LruStore():
            return TestKeyValueStore(store, access)
        case VersionedStore():
            return TestVersionedStore(store, access)
        case WindowStore():
            return TestWindowStore(store, access)
        case SessionStore():
            return TestSessionStore(store, access)
        case _:
            raise TypeError(type(store).__name__)
