"""Persons are erased from a deployed stream: nothing of them is left in any file, and everything else is as it was.

The erasures are killed at random points and given again. Before and after, each table is read at each version that can
be read: as cuts and a pin name them. The whole home is searched, inside Parquet files and archives too; only the data
of Kafka and PostgreSQL is not. Then the stream and a replay go on, and what they make is compared with the
recomputation: of all records for the rows of others, and without the persons' earlier records for their own rows.
"""

from __future__ import annotations

import random
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from deltaworks.control import batches, erasures
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.topics import prepare
from deltaworks.kafka import admin
from deltaworks.lakehouse import cuts, retention
from deltaworks.lakehouse.cuts import Cut
from deltaworks.lakehouse.reading import dataset, delta_table
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down, up
from deltaworks.topology.persons import Person
from jobs.orders import pipeline
from tests.support.live_stack import reachable
from tests.system.analysts import readers, recomputed
from tests.system.analysts.findings import Findings
from tests.system.analysts.readers import Place, Row
from tests.system.analysts.recomputed import Recomputed
from tests.system.replays.project import Project, until

PERSONS = 3
KILLS = 3
"""Of the erasure of each person but the first."""
RECORDS = (2_000, 3_000, 4_000, 5_000)
"""How many the main topic has: at first, when there is a pin, when persons are erased, and in the end."""
POINTS = (
    "erase.made",
    "erase.switched",
    "erase.deleted",
    "erase.done:state",
    "rewriting.files_written:users",
    "rewriting.log_made:order_counts",
    "rewriting.exchanged:users_changelog",
    "rewriting.exchanged:raw_orders_archive",
    "erase.done:rows",
    "erase.done:texts",
)
_PATIENCE_S = 900.0
_WORD = rb"[\w.@+-]"
Seen = dict[tuple[int, str], Counter[str]]
"""Batch of a cut and table -> rows."""


def check(work: Path, findings: Findings, seconds: float) -> None:
    """Some minutes; the budget does not matter."""
    project = Project.create(own_settings(reachable(work) / "home"), work / "project")
    up(project.settings, print, only=("kafka", "postgres", "registry"), tethered=True)
    try:
        _check(project, work, findings)
    finally:
        project.deltaworks("stop", "orders")
        down(project.settings)


def _check(project: Project, work: Path, findings: Findings) -> None:
    settings, rng = project.settings, random.Random(5)
    _prepare(project, findings)
    persons = rng.sample(_customers(settings), PERSONS)
    taken = kills = 0
    for number, person in enumerate(persons):
        cuts_before = known(settings)
        before = seen(settings, cuts_before)
        expected = {at: Counter({row: n for row, n in rows.items() if not names(row, person)})
                    for at, rows in before.items()}  # fmt: skip
        findings.holds(f"{len(holding(settings, person))} files have {person} at first", before != expected)
        kills += _erase(project, work, findings, person, rng.sample(POINTS, KILLS if number else 0))
        after = seen(settings, cuts_before)
        different = sum(_between(after[at], rows).total() for at, rows in expected.items())
        findings.rows_equal(
            f"all tables at {len({batch for batch, _ in before})} cuts without {person}",
            sum(rows.total() for rows in expected.values()),
            different,
        )
        left = holding(settings, person)
        findings.holds(f"{len(left)} files have {person} afterwards: {left[:5]}", not left)
        taken += sum((before[at] - expected[at]).total() for at in before)
    _go_on(project, findings, persons)
    findings.counts |= {"erased persons": len(persons), "their rows": taken, "killed erasures": kills}


def _prepare(project: Project, findings: Findings) -> None:
    """A stream with an archive, a publication, a pin, and older versions."""
    source = project.settings.project / "jobs" / "orders.py"
    source.write_text(source.read_text().replace('on_error="continue",', 'on_error="continue",\n    archive=True,'))
    prepare(project.settings.cluster, pipeline, pipeline.plan(), begun=False)
    _produce(project, RECORDS[0])
    answer = project.deltaworks("deploy", "orders")
    assert answer.code == 0, answer.text
    _caught_up(project.settings)
    answer = project.deltaworks("replay", "orders", "--table", "users", "--reason", "erase", "--yes")
    findings.holds("a replay was published, which keeps files for a rollback", answer.code == 0)
    _produce(project, RECORDS[1])
    _caught_up(project.settings)
    assert project.deltaworks("tables", "pin", "audit", "orders").code == 0
    _produce(project, RECORDS[2])
    _caught_up(project.settings)


def _produce(project: Project, records: int) -> None:
    answer = project.deltaworks("produce", "orders", "--records", str(records))
    assert answer.code == 0, answer.text


def _caught_up(settings: Settings) -> None:
    """All records are in a batch, and readers are shown it."""
    paths = PipelinePaths.of(settings, "orders")
    ends = {
        (topic, str(partition)): end
        for (topic, partition), end in admin.end_offsets(settings.cluster, pipeline.plan().source_topics).items()
    }

    def is_done() -> bool:
        read: dict[tuple[str, str], int] = {}
        for record in batches.read(paths.batches):
            for topic, parts in record.offsets.items():
                read |= {(topic, partition): stop for partition, (_, stop) in parts.items()}
        cut = cuts.latest(settings.tables, "orders")
        shown = cut is not None and cut.batch_id == batches.last_number(paths.batches)
        return shown and all(read.get(at, 0) >= end for at, end in ends.items())

    until(is_done, "the stream has caught up", _PATIENCE_S)


def _customers(settings: Settings) -> list[str]:
    """Users with rows in most tables."""
    table = DeltaTable(settings.tables / "order_counts")
    rows = dataset(settings.tables / "order_counts", table).to_table(columns=["user_id"]).to_pylist()
    return sorted(name for name, count in Counter(row["user_id"] for row in rows).items() if count > 2)


def _erase(project: Project, work: Path, findings: Findings, person: str, points: Sequence[str]) -> int:
    """The erasure of a person, killed at each of these points in turn; how often it was."""
    kills, paths = 0, PipelinePaths.of(project.settings, "orders")
    earlier = erasures.erasures(paths)
    for number, point in enumerate(points):
        faults = work / f"faults-{person}-{number}"
        (faults / "inject").mkdir(parents=True)
        (faults / "inject" / point).write_text("kill")
        process = project.launch("erase", "orders", "--key", person, "--yes", faults=faults)
        said, _ = process.communicate(timeout=_PATIENCE_S)
        kills += process.returncode < 0
        findings.say(f"the erasure of {person} was to be killed at {point}: {process.returncode}")
        if process.returncode > 0:
            findings.say(said[-500:])
    answer = project.deltaworks("erase", "orders", "--key", person, "--yes", "--reason", "asked for")
    said = answer.text if answer.code else ""
    findings.holds(f"{person} is erased (exit code {answer.code}) {said}", answer.code == 0)
    mine = [each for each in erasures.erasures(paths) if each not in earlier]
    taken = sum(sum(each.taken.values()) for each in mine)
    findings.holds(f"the record says so: {taken} taken", taken > 0 and all(each.done_ms for each in mine))
    return kills


def _go_on(project: Project, findings: Findings, persons: Sequence[str]) -> None:
    settings = project.settings
    paths = PipelinePaths.of(settings, "orders")
    ends = [_ends(each, paths) for each in persons]
    _produce(project, RECORDS[3])
    _caught_up(settings)
    _compare(settings, findings, persons, ends, "the stream")
    answer = project.deltaworks("replay", "orders", "--table", "users", "--reason", "erase", "--yes")
    findings.holds(f"a replay is published afterwards (exit code {answer.code})", answer.code == 0)
    _compare(settings, findings, persons, ends, "the replay")


def _ends(person: str, paths: PipelinePaths) -> dict[str, dict[str, int]]:
    """The offsets at the last erasure of a person."""
    known = Person.of(person).hash(erasures.salt(paths))
    return [each.offsets or {} for each in erasures.erasures(paths) if each.person == known][-1]


def _compare(
    settings: Settings, findings: Findings, persons: Sequence[str], ends: Sequence[dict[str, dict[str, int]]], what: str
) -> None:
    """What readers find, with the recomputation."""
    wanted = recomputed.wanted()
    opened = readers.arrow(Place(settings, "orders"), wanted, None)
    full, found = Recomputed(settings, wanted), opened.read()
    forgotten = Recomputed(settings, wanted)
    forgotten.blank(lambda topic, partition, offset, record: any(
        offset < end.get(topic, {}).get(str(partition), 0) and names(str(record), person)
        for person, end in zip(persons, ends, strict=True)
    ))  # fmt: skip
    batch = opened.batches[0]
    theirs, others = forgotten.at(batch), full.at(batch)
    for table, rows in found.items():
        expected = _chosen(others[table], persons, named=False) + _chosen(theirs[table], persons, named=True)
        findings.rows_equal(f"{table} after {what}", rows.total(), _between(rows, expected).total(), may_be_empty=True)


def _chosen(rows: Counter[Row], persons: Iterable[str], *, named: bool) -> Counter[Row]:
    return Counter({row: n for row, n in rows.items() if any(names(str(row), each) for each in persons) == named})


def _between(one: Counter[Any], other: Counter[Any]) -> Counter[Any]:
    return (one - other) + (other - one)


def names(text: str, person: str) -> bool:
    """Whether a text has a key as a whole word."""
    return _in_bytes(text.encode("utf-8", "surrogateescape"), person)


def _in_bytes(data: bytes, person: str) -> bool:
    word = re.escape(person.encode())
    return person.encode() in data and re.search(rb"(?<!%b)%b(?!%b)" % (_WORD, word, _WORD), data) is not None


def known(settings: Settings) -> list[Cut]:
    """Cuts that can be read: pins, some of the last hour, and the newest."""
    found: dict[int, Cut] = {pin.cut.batch_id: pin.cut for pin in retention.pins(settings.tables, "orders")}
    for file in sorted(cuts.folder(settings.tables, "orders").glob("*.jsonl"))[-1:]:
        lines = list(cuts._cuts_in(file))
        found |= {cut.batch_id: cut for cut in [*lines[:: max(1, len(lines) // 5)], lines[-1]]}
    return list(found.values())


def seen(settings: Settings, at: Iterable[Cut]) -> Seen:
    """All that a reader finds in the tables at these cuts, by Delta's own rules."""
    return {
        (cut.batch_id, name): Counter(map(str, _rows(settings.tables / name, version)))
        for cut in at
        for name, version in cut.tables.items()
    }


def _rows(table: Path, version: int) -> list[dict[str, Any]]:
    return list(dataset(table, delta_table(table, version)).to_table().to_pylist())


def holding(settings: Settings, person: str) -> list[str]:
    """Files of the home that name a person in any form; not those of Kafka and PostgreSQL."""
    skipped = (settings.kafka, settings.postgres, settings.jars, settings.archives)
    files = (
        path for path in sorted(settings.home.rglob("*")) if not any(path.is_relative_to(each) for each in skipped)
    )
    return [
        str(path.relative_to(settings.home))
        for path in files
        if path.is_file() and any(_in_bytes(content, person) for content in _contents(path))
    ]


def _contents(path: Path) -> Iterator[bytes]:
    try:
        yield path.read_bytes()
        yield str(path).encode()
        if path.suffix == ".parquet":
            yield str(_decoded(pq.ParquetFile(path).read())).encode("utf-8", "surrogateescape")
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                yield from map(archive.read, archive.namelist())
    except (FileNotFoundError, pa.ArrowInvalid):
        return  # of a stream that goes on


def _decoded(rows: pa.Table) -> list[Any]:
    return list(rows.to_pylist())
