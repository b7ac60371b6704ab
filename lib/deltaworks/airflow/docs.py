"""The documentation (`doc_md`) that Airflow shows on the pages of a pipeline's DAGs."""

from __future__ import annotations

from collections.abc import Iterable

from deltaworks.airflow.replay_form import Tables
from deltaworks.control.incidents import runbook
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.dsl.reprocess import ChangeLimit, HandOver, Reprocess
from deltaworks.topology.checks import table_names

_DOC = """
{about}

| | |
|---|---|
| Defined in | `jobs/{name}.py` |
| Reads topics | {sources} |
| Writes topics | {sinks} |
| Writes tables | {tables} |
| A record that fails | {on_error} |
| Trigger interval | {interval:g} s, unless the form sets another one |

### Start, stop, restart
Trigger this DAG; the form asks what to do. The run stays active as long as the stream runs: its task `supervise` is
deferred and takes no worker slot. **The stream does not depend on the run**: marking, clearing or failing a task or a
run never stops the stream. To stop it, trigger this DAG with *stop*, or call `deltaworks stop {name}`.

If a stream dies, the supervisor restarts it at once, and it gets a new run of this DAG. Clearing `supervise` attaches
to the same deployment again. Clearing `deploy` does not deploy again; trigger a new run for that.

### Topology
```
{topology}
```
"""

_REPLAY = """
Processes the history of `{name}` again with the current code in `jobs/` and writes the results to staging tables. It
then compares them with production, checks them, and publishes them in one commit per table, even while the stream
runs. Nothing that others read changes before the task `publish`.

| | |
|---|---|
| Tables published by day | {with_days} |
| Tables published as a whole | {whole} |
| Without Airflow | `deltaworks replay {name}` |

{days}
{tasks}
"""

_BACKFILL = """### One day, or a backfill of days
A run with a partition key (`2026-11-22`) publishes that UTC day. A backfill has such a run per day:

| | |
|---|---|
| One day | trigger this DAG with the day as its partition key, or with From and To |
| Many days, one after the other | a backfill: *Backfill* on this page, or the command below |
| Days that were published before | the same with `--reprocess-behavior completed`, which makes new runs |
| A range of days at once | From and To: it reads the history once, a backfill reads it once per day |

```
airflow backfill create --dag-id {name}__replay --max-active-runs 1 \\
  --from-date 2026-11-01 --to-date 2026-11-07 \\
  --dag-run-conf '{{"reason": "prices were wrong", "approval": false}}'
```
The range includes both dates. Without `"approval": false`, each day waits for its approval. The schedule of this DAG
only makes backfills possible; nothing starts at midnight.
"""

_REPLAY_TASKS = """### Tasks
| | |
|---|---|
| `plan` | checks the request and decides which batches run again and which tables they write |
| `run` | runs the batches and writes staging tables; resumes where it stopped if it is killed or cleared |
| `compare` | compares staging with production, row by row |
| `gate` | checks the staging tables with the pipeline's suite and the built-in invariants; rehearses the batch jobs \
behind it, if they are to be computed again |
| `approve` | asks a person to approve or reject the differences (*Required Actions*); skipped unless requested |
| `publish` | publishes, in one commit per table, or hands the stream over |
| `verify` | compares production with what was published |
| `cascade` | computes the batch jobs that read what is published again, in order, if that was asked for |
| `clean` | removes the staging tables |
| `discard` | after a rejection, removes the staging tables; nothing was published |

{more}
If the gate fails, the run fails and keeps the staging tables so that you can see why. While they exist, no other
replay may publish the same days. To remove one, or to restore what a publication has replaced (for seven days), trigger
`{name}__replay` with that action and the id of the run; on the command line, `deltaworks discard RUN` and
`deltaworks rollback RUN` do it, and `deltaworks replays` lists what there is."""
_BEFORE_PLAN = """### Roll back, discard
The form has the actions `roll back` (task `roll_back`) and `discard` (task `remove`) for an earlier run: paste the id
of that run of this DAG, or the id of the replay, which the log of `plan` has.
"""


_REPROCESS = """
{about} `jobs/{name}.py` says so (`reprocess=`).

| | |
|---|---|
| When | `{schedule}` (UTC), and when you trigger this DAG |
{rows}
| Runs that were missed | {missed} |

{backfill}
A run that waits holds up those after it. To choose days, tables or order yourself, trigger `{name}__replay`. Pause this
DAG to stop the schedule.

{tasks}

`decide` says what of this applies: `publish`, `approve` (a person is asked) or `unchanged` (production is equal, so the
staging tables are removed and nothing is published).
"""
_OF_DAYS = """Processes the newest days of `{name}` again with its current code, compares the result with production, \
checks it, and publishes the tables and days that differ. Days with windows that may still change are left out."""
_OF_ALL = """Processes all history of `{name}` again with its current code, and compares the result with production. \
If tables differ, the replay catches up with the stream, and the stream goes on with its stores and tables."""
_BACKFILL_OF_INTERVALS = """Earlier days come of a backfill of this DAG; each of its runs processes the days of its own
interval:

```
airflow backfill create --dag-id {name}__reprocess --max-active-runs 1 \\
  --from-date 2026-11-02 --to-date 2026-11-07T23:59
```
"""


def when_red(docs_url: str | None, text: str) -> str:
    """Markdown for any DAG: its text, and where the runbooks are.

    Args:
        docs_url: of the settings.
        text: the Markdown of the DAG.
    """
    page = runbook(docs_url, "red-tasks")
    where = f"`{page}`" if docs_url is None else f"[the runbooks]({page})"
    return f"{text.strip()}\n\nWhat to do about a red task: {where}."


def stream_doc(name: str, about: str | None, pipeline: Pipeline) -> str:
    """Markdown for `<name>__stream`; it begins with the docstring of the author's module."""
    plan = pipeline.plan()
    letters = (pipeline.dead_letters.topic, pipeline.dead_letters.table)
    corrections = None if pipeline.corrections is None else pipeline.corrections.topic
    return _DOC.format(
        about=(about or f"The pipeline `{name}`.").strip(),
        name=name,
        sources=_listed([*plan.source_topics, *plan.global_topics]),
        sinks=_listed([*plan.sink_topics, *filter(None, (letters[0], corrections))]),
        tables=_listed([*(table for sink in plan.tables for table in table_names(sink)), *filter(None, letters[1:])]),
        on_error="stops the stream" if pipeline.on_error == "fail" else "becomes a dead letter",
        interval=pipeline.trigger_interval.total_seconds(),
        topology=plan.describe().strip(),
    ).strip()


def replay_doc(name: str, tables: Tables) -> str:
    """Markdown for `<name>__replay`."""
    with_days, whole = _listed(tables.with_days), _listed(tables.whole)
    days = _BACKFILL.format(name=name) if tables.with_days else ""
    return _REPLAY.format(
        name=name, with_days=with_days, whole=whole, days=days, tasks=_tasks(name, _BEFORE_PLAN)
    ).strip()


def reprocess_doc(name: str, policy: Reprocess, tables: Tables) -> str:
    """Markdown for `<name>__reprocess`."""
    if policy.hand_over is None:
        about, backfill = _OF_DAYS, _BACKFILL_OF_INTERVALS
        days = f"the {policy.days} UTC days before that time" if policy.days > 1 else "the UTC day before that time"
        chosen = _listed(policy.tables or tables.with_days)
        asked = "asks about any difference" if policy.publish == "ask" else _within(policy.limit)
        rows = [("Days", days), ("Tables", chosen), ("Order", policy.order), ("Publishing", asked)]
    else:
        about, backfill = _OF_ALL, ""
        rows = [("Tables", _listed(tables.all)), ("Handing over", _switched(policy, policy.hand_over))]
    return _REPROCESS.format(
        name=name,
        about=about.format(name=name),
        schedule=policy.schedule,
        rows="\n".join(f"| {what} | {text} |" for what, text in rows),
        backfill=backfill.format(name=name),
        missed=f"made up for, from {policy.start_date} on" if policy.catchup else "skipped, except for the last one",
        tasks=_tasks(name),
    ).strip()


def _tasks(name: str, more: str = "") -> str:
    return _REPLAY_TASKS.format(name=name, more=more)


def _switched(policy: Reprocess, hand_over: HandOver) -> str:
    if hand_over.window is None or policy.publish == "ask":
        return "asks about any difference"
    begin, end = (f"{each:%H:%M}" for each in hand_over.window)
    within = _within(policy.limit).replace("publishes", "switches")
    return f"from {begin} to {end} UTC, for which `publish` waits, it {within}; an approval switches at once"


def _within(limit: ChangeLimit | None) -> str:
    if limit is None:
        return "publishes whatever differs"
    parts = [] if limit.rows is None else [f"at most {limit.rows:,} rows differ"]
    parts += [] if limit.share is None else [f"at most {limit.share:.3%} of the rows of each table"]
    parts += [f"the sum of `{name}` changes by at most {share:.3%}" for name, share in limit.sums.items()]
    return f"publishes what differs if {', and '.join(parts)}; otherwise it asks" if parts else "publishes what differs"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
