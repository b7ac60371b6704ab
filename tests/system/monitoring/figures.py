"""The figures of a stream that has caught up, as each who shows them says, and as the topics say."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import Message

from deltaworks.control.paths import PipelinePaths
from deltaworks.kafka import admin
from jobs.recomputed.orders import recomputation
from tests.support.live_stack import read_all
from tests.support.monitoring import asked
from tests.system.monitoring import job
from tests.system.monitoring.run import Page, Run, late, write

_AGREE_S, _HOUR_MS = 40.0, 3_600_000
_WRITTEN, _FAILED, _LATE = 500, 3, 40
_TELLING = 20
"""Records of known keys, for each task: it tells the sizes of its stores with its next batch."""
_COUNTED = {
    "records": "records_total",
    "dead letters": "dead_letters_total",
    "late records": "late_records_total",
    "state entries": "state_entries",
    "lag in seconds": "lag_seconds",
    "batch": "last_batch",
    "generation": "generation",
}
_SAID = {
    "generation": "generation",
    "batch": "batch_id",
    "lag": "lag_records",
    "lag in seconds": "lag_seconds",
    "state entries": "state_entries",
    "dead letters": "dead_letters",
    "restarts": "restarts",
    "incidents": "incidents",
}
"""Figure -> field of page and status."""
_OF_STATUS = frozenset({"generation", "batch", "lag", "lag in seconds", "restarts", "incidents"})
"""Those that `deltaworks status` has; the page has all."""
_UNSAID = float("nan")
Figures = dict[str, float]


def of_watched(run: Run, page: Page, name: str = "watched") -> tuple[int, list[str]]:
    """A new driver reads some records of each kind, then all have to say the same; how many figures there are, and
    what is wrong."""
    run.caught_up(name)
    run.does("stop", name)
    begins = admin.end_offsets(run.settings.cluster, [name])
    run.deploy(name)
    records = [(f"last-{number % 300}", "x", 0) for number in range(_WRITTEN)]
    records += [(f"failed-{number}", job.FAIL, 0) for number in range(_FAILED)]
    records += [late(f"late-{number}", "x") for number in range(_LATE)]
    write(run.settings, name, records)
    run.caught_up(name)
    write(run.settings, name, ((f"last-{number}", "x", 0) for number in range(_TELLING)))
    run.caught_up(name)
    messages = read_all(run.settings.cluster, name)
    new = [each for each in messages if (each.offset() or 0) >= begins[name, each.partition() or 0]]
    words = _words(messages)
    recomputed: Figures = {
        "records": len(new),
        "dead letters": sum(_fails(each) for each in new),
        "late records": sum(each.timestamp()[1] < time.time() * 1_000 - _HOUR_MS for each in new),
        "lag": 0,
        "lag in seconds": 0,
        "read up to": len(messages),
        "keys": len(words),
    }
    count, wrong = _agreed(run, page, name, recomputed, job.counts(name))
    letters = len(read_all(run.settings.cluster, job.letters(name)))
    if letters != (failed := sum(map(_fails, messages))):
        wrong.append(f"{name}: {letters} dead letters of {failed} records that fail")
    run.caught_up(name)
    if (found := {row["word"]: row["number"] for row in run.project.table(f"{name}_counts")}) != words:
        wrong.append(f"{name}: the table has {len(found)} keys with {sum(found.values())} records, "
                     f"not {len(words)} with {words.total()}")  # fmt: skip
    return count + 2, wrong


def of_orders(run: Run, page: Page) -> tuple[int, list[str]]:
    """Likewise of `orders`, whose results are recomputed."""
    run.caught_up("orders")
    read = sum(admin.end_offsets(run.settings.cluster, recomputation.inputs).values())
    count, wrong = _agreed(run, page, "orders", {"lag": 0, "lag in seconds": 0, "read up to": read}, None)
    batches = PipelinePaths.of(run.settings, "orders").batches
    compared = recomputation.check(run.settings.cluster, run.settings.tables, batches)
    wrong += [f"orders: {each.kind} {each.name}: {each.different} rows differ" for each in compared if not each.equal]
    wrong += [] if compared else ["orders: no result was recomputed"]
    return count + len(compared), wrong


def _words(messages: list[Message]) -> Counter[str]:
    """Key -> its records that do not fail."""
    return Counter((each.key() or b"").decode() for each in messages if not _fails(each))


def _fails(message: Message) -> bool:
    return message.value() == job.FAIL.encode()


def _agreed(run: Run, page: Page, name: str, recomputed: Figures, store: str | None) -> tuple[int, list[str]]:
    """Until all say the same, or for long enough: how many figures there are, and where they differ."""
    end = time.monotonic() + _AGREE_S
    while True:
        said = {
            "topics": recomputed,
            "heartbeat": _of_heartbeat(run, name, store),
            "metrics": _of_metrics(run, name, store),
            "page": _of_document(page.says(f"streams/{name}")["stream"], _SAID),
            "page of all": _of_document(_named(page.says("streams")["streams"], name), _SAID),
            "status": _of_document(_named(run.lists("status", name)["pipelines"], name), _OF_STATUS),
        }
        if store is not None:
            sizes = run.lists("store", "stats", name, store)["stores"]
            said["store stats"] = {"keys": sizes[0]["entries"]}
        shown = by_figure(said)
        wrong = [f"{name}: {figure}: {values}" for figure, values in shown.items() if not agree(values)]
        if not wrong or time.monotonic() > end:
            break
        time.sleep(1.0)
    for figure, values in shown.items():
        print(f"  {name}, {figure}: {next(iter(values.values())):g} by {', '.join(values)}"
              f"{'' if agree(values) else f'  DIFFERENT: {values}'}", flush=True)  # fmt: skip
    return sum(map(len, shown.values())), wrong


def by_figure(said: Mapping[str, Figures]) -> dict[str, dict[str, float]]:
    """Figure -> who says it -> what they say."""
    shown: dict[str, dict[str, float]] = defaultdict(dict)
    for who, figures in said.items():
        for figure, value in figures.items():
            shown[figure][who] = value
    return shown


def agree(values: Mapping[str, float]) -> bool:
    """Whether several say it, each of them a number, and all the same."""
    return len(values) > 1 and not any(map(math.isnan, values.values())) and len({*values.values()}) == 1


def _named(listed: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(each for each in listed if each["name"] == name)


def _of_document(said: Mapping[str, Any], figures: Collection[str]) -> Figures:
    values = {figure: said.get(_SAID[figure]) for figure in figures}
    return {figure: _UNSAID if value is None else float(value) for figure, value in values.items()}


def _of_heartbeat(run: Run, name: str, store: str | None) -> Figures:
    beat = run.beat(name)
    assert beat is not None and beat.batch_id is not None
    found: Figures = {
        "records": beat.records_total,
        "dead letters": beat.dead_letters,
        "late records": beat.late_records,
        "state entries": beat.state_entries,
        "batch": beat.batch_id,
        "generation": beat.generation,
        "read up to": sum(sum(parts.values()) for parts in beat.next_offsets.values()),
        "lag": _UNSAID if beat.lag_records is None else beat.lag_records,
        "lag in seconds": _UNSAID if beat.lag_seconds is None else beat.lag_seconds,
    }
    return found | ({} if store is None else {"keys": beat.stores[store].entries})


def _of_metrics(run: Run, name: str, store: str | None) -> Figures:
    prefix, where = "deltaworks_stream_", f'pipeline="{name}"'
    queries = {figure: f"max({prefix}{metric}{{{where}}})" for figure, metric in _COUNTED.items()}
    queries["lag"] = f"sum({prefix}lag_records{{{where}}})"
    queries["read up to"] = f"sum({prefix}next_offset{{{where}}})"
    if store is not None:
        queries["keys"] = f'max({prefix}store_entries{{{where},store="{store}"}})'
    found = {figure: asked(run.settings, query) for figure, query in queries.items()}
    return {figure: float(series[0]["value"][1]) if series else _UNSAID for figure, series in found.items()}
