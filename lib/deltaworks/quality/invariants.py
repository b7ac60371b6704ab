"""Invariants that hold for the tables of every pipeline, whatever it computes.

| invariant | checks | says |
|---|---|---|
| `KeysUnique` | windowed tables, snapshots | one row per key, or per key and window |
| `RowsInTheirPartition` | windowed tables | `window_date` is the day on which the window starts |
| `FinalWindows` | windowed tables | a window is final if and only if it ended before its task's closed time |
| `SnapshotIsChangelog` | snapshots | the last update per key of the changelog, as of the snapshot's batch |
| `SnapshotIsCurrent` | snapshots of a replay | no update of the changelog is missing |
| `OnlyWhatWasRead` | tables of a replay | no row comes from a record or batch that the replay did not read |
| `DaysAreComplete` | windowed tables of a replay | all windows of the requested days are final |
| `EveryPartition` | a replay and production | no partition has become silent |
| `Volume` | a replay and production | days have about as many rows as the days before them (a warning) |
| `OtherDays` | a replay and production | days that were not requested would not change (a warning) |

A bug fix changes production: there may be half as many rows, or ten times as many, and a day may vanish that only had
rows because a clock was wrong. So comparisons of numbers with production never block; the approver sees them.
`EveryPartition` does block: a record's partition follows from a hash of its key, so no correct fix empties one
partition with many keys and leaves the others as they were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse.later_begin import LaterBegin
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.sandbox import Limits, Sandbox
from deltaworks.lakehouse.sandbox import identifier as _q
from deltaworks.lakehouse.schema import Role, TableSchema, changelog_name
from deltaworks.quality.table_snapshots import TableSnapshots
from deltaworks.quality.verdict import Outcome, Verdict

VOLUME_BAND = 3.0
"""Factor by which the rows of a day may exceed, or fall below, the average of the days before it."""
VOLUME_DAYS = 7
VOLUME_MIN_DAYS = 3
VOLUME_MIN_ROWS = 100
SILENT_MIN_ROWS = 20
SILENT_MIN_KEYS = 10


@dataclass(frozen=True)
class _Rule:
    name: str
    table: str
    expects: str
    why: str
    query: str
    """Query that selects the violations."""
    severity: str = "critical"


def alone(tables: TableSnapshots, *, samples: int = 5, limits: Limits | None = None) -> list[Verdict]:
    """Checks what holds for any tables at any time."""
    with _sandbox(limits, tables) as sandbox:
        return _checked(sandbox, tables, _alone(tables), samples)


def of_replay(
    staging: TableSnapshots,
    production: TableSnapshots,
    scope: Scope,
    published: Collection[str],
    begin: LaterBegin | None = None,
    *,
    samples: int = 5,
    limits: Limits | None = None,
) -> list[Verdict]:
    """Checks what also holds for staging tables, some of which are to replace a part of production.

    Args:
        staging: tables of a replay.
        production: current tables of production.
        scope: what the replay has read, and which days it would publish.
        published: names of the tables that it would publish.
        begin: where the replay began; None: with the first batch.
        samples: maximum number of rows that a verdict shows.
        limits: limits of each query; None: the defaults.
    """
    with _sandbox(limits, staging, production) as sandbox:
        rules = _of_replay(staging, production, scope, published, begin)
        return _checked(sandbox, staging, rules, samples)


# Rules ---------------------------------------------------------------------------------------------------------------


def _alone(tables: TableSnapshots) -> Iterator[_Rule]:
    for name, table in tables.by_name.items():
        match table.schema.role:
            case Role.WINDOWED:
                yield _keys_unique(table.schema, ("window_start", "window_end"))
                yield _Rule(
                    "RowsInTheirPartition",
                    name,
                    "window_date is the day on which the window starts, in UTC",
                    "Days are published and read by it: a row in another partition is lost or duplicated.",
                    f"SELECT * FROM {_q(name)} "
                    "WHERE window_date IS DISTINCT FROM (window_start AT TIME ZONE 'UTC')::DATE",
                )
                yield _final_windows(tables, name)
            case Role.SNAPSHOT:
                yield _keys_unique(table.schema, ())
                if changelog_name(name) in tables.by_name:
                    yield _snapshot_is_changelog(tables, name)
            case Role.APPEND | Role.CHANGELOG | Role.DEAD_LETTERS:
                pass  # one record may give several equal rows


def _of_replay(
    staging: TableSnapshots,
    production: TableSnapshots,
    scope: Scope,
    published: Collection[str],
    begin: LaterBegin | None,
) -> Iterator[_Rule]:
    for name, table in staging.by_name.items():
        schema = table.schema
        if schema.role is not Role.WINDOWED:
            yield _only_what_was_read(schema, scope)
        if name not in published:
            continue
        beside = name in production.by_name
        if schema.role is Role.SNAPSHOT and table.as_of_batch is not None:
            yield _Rule(
                "SnapshotIsCurrent",
                name,
                f"the snapshot shows every update of {changelog_name(name)}",
                "Readers of the snapshot would get an older state than readers of the changelog.",
                f"SELECT max(batch_id) AS batch, {table.as_of_batch} AS as_of_batch "
                f"FROM {_q(changelog_name(name))} HAVING max(batch_id) > {table.as_of_batch}",
            )
        if schema.role is Role.WINDOWED and scope.to_ms is not None:
            yield _Rule(
                "DaysAreComplete",
                name,
                "all windows of the days to publish are final",
                "A published window that is not final would never be updated.",
                f"SELECT * FROM {_q(name)} WHERE {scope.condition(schema)} AND NOT is_final",
            )
        if schema.role in (Role.APPEND, Role.CHANGELOG) and beside:
            yield _every_partition(schema, scope)
        if schema.role in (Role.APPEND, Role.WINDOWED) and beside:
            yield _volume(schema, scope)
        if schema.role is Role.WINDOWED and beside and (scope.from_ms is not None or scope.to_ms is not None):
            yield _other_days(schema, scope, begin)


def _keys_unique(schema: TableSchema, window: tuple[str, ...]) -> _Rule:
    columns = ", ".join(map(_q, (*schema.key_names, *window)))
    return _Rule(
        "KeysUnique",
        schema.name,
        f"one row per {columns}".replace('"', ""),
        "A later result replaces the earlier one: with two rows, a sum counts the same records twice.",
        f"SELECT {columns}, count(*) AS rows FROM {_q(schema.name)} GROUP BY {columns} HAVING count(*) > 1",
    )


def _final_windows(tables: TableSnapshots, name: str) -> _Rule:
    """Checks by task where the Delta log names it, otherwise between the lowest and the highest closed time."""
    table = tables.by_name[name]
    closed = table.closed_before_ms
    late = [page for page in table.pages if page.closes_ms < closed.get(page.task, -1)]
    pages = ", ".join(f"({page.task}, {_text(page.path)})" for page in late)
    parts = [f"SELECT * FROM (VALUES {pages}) AS open_pages(task, path)"] if late else []
    if closed or not table.pages:
        highest = max(closed.values(), default=0)
        parts.append(f"SELECT * FROM {_q(name)} WHERE is_final AND epoch_ms(window_end) >= {highest}")
    if closed and {page.task for page in table.pages} <= closed.keys():
        lowest = min(closed.values())
        parts.append(f"SELECT * FROM {_q(name)} WHERE NOT is_final AND epoch_ms(window_end) < {lowest}")
    return _Rule(
        "FinalWindows",
        name,
        "a window is final if and only if it ended before the time up to which its task has closed windows",
        "Readers of final results get each result once, and it is never revoked.",
        " UNION ALL BY NAME ".join(parts) or "SELECT 1 WHERE false",
    )


def _snapshot_is_changelog(tables: TableSnapshots, name: str) -> _Rule:
    """Without a cache, a batch may have several rows of a key; the snapshot has one of them."""
    table = tables.by_name[name]
    key, columns = (", ".join(map(_q, names)) for names in (table.schema.key_names, table.schema.arrow.names))
    same_key = " AND ".join(f"s.{_q(column)} IS NOT DISTINCT FROM l.{_q(column)}" for column in table.schema.key_names)
    until = "" if table.as_of_batch is None else f"WHERE batch_id <= {table.as_of_batch}"
    return _Rule(
        "SnapshotIsChangelog",
        name,
        f"the snapshot is the last update per key of {changelog_name(name)}",
        "Snapshot and changelog are two forms of the same table: readers of either must get the same answer.",
        f"""
        WITH last AS (
            SELECT * FROM {_q(changelog_name(name))} {until}
            QUALIFY rank() OVER (PARTITION BY {key} ORDER BY batch_id DESC) = 1
        )
        SELECT 'not the last update' AS problem, * FROM (
            SELECT {columns} FROM {_q(name)} EXCEPT SELECT {columns} FROM last WHERE op = 'upsert')
        UNION ALL BY NAME
        SELECT 'missing' AS problem, {key} FROM (
            SELECT {key} FROM last GROUP BY {key} HAVING bool_and(op = 'upsert')) l
        WHERE NOT EXISTS (FROM {_q(name)} s WHERE {same_key})
        """,
    )


def _only_what_was_read(schema: TableSchema, scope: Scope) -> _Rule:
    anytime = Scope(end_offsets=scope.end_offsets, last_batch=scope.last_batch).condition(schema)
    caused = {Role.APPEND: "source_offset >= 0 AND ", Role.DEAD_LETTERS: '"offset" >= 0 AND '}.get(schema.role, "")
    return _Rule(
        "OnlyWhatWasRead",
        schema.name,
        f"every row comes from a record that the replay has read, up to batch {scope.last_batch}",
        "The stream writes all later rows; they would be duplicated.",
        f"SELECT * FROM {_q(schema.name)} WHERE {caused}NOT ({anytime})",
    )


def _every_partition(schema: TableSchema, scope: Scope) -> _Rule:
    where, key = scope.condition(schema), ", ".join(map(_q, schema.key_names)) or "NULL"
    return _Rule(
        "EveryPartition",
        schema.name,
        "no single partition that has many keys in production is silent while the others are not",
        "Partitions follow from a hash of the key: a lost task empties a single one, a bug fix does not.",
        f"""
        WITH before AS (
            SELECT source_topic, source_partition, count(*) AS rows, count(DISTINCT ({key})) AS keys
            FROM {_old(schema.name)} WHERE {where} GROUP BY ALL
        ), after AS (
            SELECT source_topic, source_partition, count(*) AS rows FROM {_q(schema.name)} WHERE {where} GROUP BY ALL
        ), compared AS (
            SELECT source_topic, source_partition, b.rows AS in_production, b.keys, coalesce(a.rows, 0) AS in_replay
            FROM before b LEFT JOIN after a USING (source_topic, source_partition)
        )
        SELECT * FROM compared WHERE in_replay = 0 AND in_production >= {SILENT_MIN_ROWS} AND keys >= {SILENT_MIN_KEYS}
        AND (SELECT sum(o.in_replay) > sum(o.in_production) / 2 FROM compared o
             WHERE o.source_topic = compared.source_topic AND o.in_replay > 0)
        """,
    )


def _volume(schema: TableSchema, scope: Scope) -> _Rule:
    """Checks production as it would be. The first and newest days are skipped: the data begins or ends within them."""
    where, time = scope.condition(schema), "window_start" if schema.role is Role.WINDOWED else "timestamp"
    return _Rule(
        "Volume",
        schema.name,
        f"each day to publish has between 1/{VOLUME_BAND:g} and {VOLUME_BAND:g} times the rows of the days before it",
        "A bug fix may well change that. If it should not, this shows it.",
        f"""
        WITH result AS (
            SELECT {time} AT TIME ZONE 'UTC' AS moment FROM {_q(schema.name)} WHERE {where}
            UNION ALL SELECT {time} AT TIME ZONE 'UTC' FROM {_old(schema.name)} WHERE NOT ({where})
        ), counted AS (
            SELECT moment::DATE AS day, count(*) AS rows FROM result GROUP BY ALL
        ), days AS (
            SELECT unnest(generate_series(min(moment), max(moment), INTERVAL 1 DAY))::DATE AS day
            FROM (SELECT date_trunc('day', moment) AS moment FROM result)
        ), filled AS (
            SELECT day, coalesce(rows, 0) AS rows, row_number() OVER (ORDER BY day) AS number,
                count(*) OVER () AS days FROM days LEFT JOIN counted USING (day)
        ), compared AS (
            SELECT *, avg(rows) FILTER (number > 1) OVER before AS usual,
                count(*) FILTER (number > 1) OVER before AS seen
            FROM filled
            WINDOW before AS (ORDER BY day ROWS BETWEEN {VOLUME_DAYS} PRECEDING AND 1 PRECEDING)
        )
        SELECT day, rows, round(usual) AS usual FROM compared
        WHERE number < days AND seen >= {VOLUME_MIN_DAYS} AND usual >= {VOLUME_MIN_ROWS}
        AND rows NOT BETWEEN usual / {VOLUME_BAND} AND usual * {VOLUME_BAND}
        AND {_in_days("day", scope)}
        ORDER BY day
        """,
        severity="warning",
    )


def _other_days(schema: TableSchema, scope: Scope, begin: LaterBegin | None) -> _Rule:
    """Compares days that are final on both sides, so that no more rows of them can come."""
    complete = "TRUE" if begin is None else f"epoch_ms(window_start) >= {begin.complete_from_ms}"
    columns = ", ".join(_q(name) for name in schema.arrow.names)

    def days(source: str) -> str:
        return (
            f"SELECT window_date, count(*) AS rows, sum(hash({columns})) AS content FROM {source} "
            f"WHERE {complete} AND NOT ({scope.condition(schema)}) GROUP BY ALL HAVING bool_and(is_final)"
        )

    return _Rule(
        "OtherDays",
        schema.name,
        "days that are not published are the same in the replay",
        "They keep their old rows, although the new code computes others: publish them, too?",
        f"SELECT window_date, p.rows AS in_production, s.rows AS in_replay FROM ({days(_old(schema.name))}) p "
        f"JOIN ({days(_q(schema.name))}) s USING (window_date) WHERE p.content <> s.content ORDER BY window_date",
        severity="warning",
    )


# Checking ------------------------------------------------------------------------------------------------------------


def _sandbox(limits: Limits | None, tables: TableSnapshots, production: TableSnapshots | None = None) -> Sandbox:
    sandbox = Sandbox(limits)
    for name, table in tables.by_name.items():
        sandbox.add(name, table.rows)
    for name, table in ({} if production is None else production.by_name).items():
        sandbox.add(f"production {name}", table.rows)
    return sandbox


def _checked(sandbox: Sandbox, tables: TableSnapshots, rules: Iterator[_Rule], samples: int) -> list[Verdict]:
    rows = {name: table.rows.count_rows() for name, table in tables.by_name.items()}
    return [_verdict(sandbox, rule, rows[rule.table], samples) for rule in rules]


def _verdict(sandbox: Sandbox, rule: _Rule, rows: int, samples: int) -> Verdict:
    verdict = Verdict(
        table=rule.table,
        expectation=rule.name,
        expects=rule.expects,
        why=rule.why,
        severity=rule.severity,
        outcome=Outcome.PASSED,
        rows=rows,
        unexpected=0,
    )
    try:
        unexpected, sample = sandbox.select(rule.query, samples)
    except ConfigurationError as error:
        return replace(verdict, outcome=Outcome.ERROR, error=str(error), unexpected=None)
    if not unexpected:
        return verdict
    return replace(verdict, outcome=Outcome.FAILED, unexpected=unexpected, sample=sample)


def _in_days(column: str, scope: Scope) -> str:
    first, end = scope.days
    bounds = [f"{column} >= DATE '{first}'"] if first else []
    bounds += [f"{column} < DATE '{end}'"] if end else []
    return " AND ".join(bounds) or "true"


def _old(name: str) -> str:
    return _q(f"production {name}")


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
