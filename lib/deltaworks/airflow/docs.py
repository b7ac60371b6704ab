"""What the pages of a pipeline's DAGs say about it."""

from __future__ import annotations

from collections.abc import Iterable

from deltaworks.airflow.replay_form import Tables
from deltaworks.dsl.pipeline import Pipeline
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
| Micro-batch | every {interval:g} s, unless the form says otherwise |

### Start, stop, restart
Trigger this DAG; the form asks what to do. The run stays active while the stream does: its task `supervise` waits and
takes no worker. **The stream does not depend on it**: marking, clearing or failing a task or a run never stops the
stream. To stop it, trigger this DAG with *stop*, or `deltaworks stop {name}`.

A stream that dies is started again by the supervisor, at once, and gets a new run of this DAG. Clearing `supervise`
attaches to the same deployment again; clearing `deploy` does not deploy again, trigger a new run for that.

### Topology
```
{topology}
```
"""

_REPLAY = """
Processes the history of `{name}` again with the code in `jobs/` as it is now, into staging tables; compares them with
production; checks them; and publishes them in one commit per table, also under a running stream. Nothing that others
read changes before the task `publish`.

| | |
|---|---|
| Tables with days | {with_days} |
| Tables without, published as a whole | {whole} |
| One day, or a backfill of days | `{name}__reprocess` |
| The same without Airflow | `deltaworks replay {name}` |

{tasks}
"""

_REPROCESS = """
Publishes one day of `{name}` as the code in `jobs/` gives it now. A run is for one UTC day, its partition key
(`2026-11-22`), and nothing starts it but you:

| | |
|---|---|
| Many days | a backfill: with *Backfill* on this page, or as below |
| Days again that were published before | the same with `--reprocess-behavior completed`: it makes new runs |
| One day | trigger this DAG with the day as its partition key |
| A range of days as one | `{name}__replay`: it reads the history once, a backfill once per day |
| Tables | {with_days} |

```
airflow backfill create --dag-id {name}__reprocess --max-active-runs 1 \\
  --from-date 2026-11-01 --to-date 2026-11-07 --dag-run-conf '{{"reason": "prices were wrong"}}'
```
Both days are included. The DAG is paused at first, and Airflow starts no run of a paused DAG, not even a backfill's:
switch it on. It has a schedule only so that it can have backfills; midnight starts nothing.

{tasks}
"""

_REPLAY_TASKS = """### Tasks
| | |
|---|---|
| `plan` | checks what was asked for; which batches run again, which tables they give |
| `run` | runs the batches, into staging tables; may be killed or cleared, it goes on where it was |
| `compare` | what would change, row by row |
| `gate` | the suite of the pipeline and our own invariants, on the staging tables |
| `approve` | a person sees the differences, approves or rejects: *Required Actions*; skipped without approval |
| `publish` | one commit per table |
| `verify` | production against what was published |
| `clean` | removes the staging tables |
| `discard` | after a rejection: removes them, nothing was published |

If the gate is not passed, the run fails and the staging tables stay, so that you can see why; while they are there, no
other replay may publish the same days. `deltaworks replays` lists what is left, `deltaworks discard RUN` removes it,
`deltaworks rollback RUN` brings back what a publish has replaced. The id of a replay is in the log of `plan`."""


def stream_doc(name: str, about: str | None, pipeline: Pipeline) -> str:
    """Markdown; the author's words (the docstring of the module) come first."""
    plan = pipeline.plan()
    letters = (pipeline.dead_letter_topic, pipeline.dead_letter_table)
    return _DOC.format(
        about=(about or f"The pipeline `{name}`.").strip(),
        name=name,
        sources=_listed(plan.source_topics),
        sinks=_listed([*plan.sink_topics, *filter(None, letters[:1])]),
        tables=_listed([*(table for sink in plan.tables for table in table_names(sink)), *filter(None, letters[1:])]),
        on_error="stops the stream" if pipeline.on_error == "fail" else "is set aside as a dead letter",
        interval=pipeline.trigger_interval.total_seconds(),
        topology=plan.describe().strip(),
    ).strip()


def replay_doc(name: str, tables: Tables) -> str:
    """Markdown for `<name>__replay`."""
    with_days, whole = _listed(tables.with_days), _listed(tables.whole)
    return _REPLAY.format(name=name, with_days=with_days, whole=whole, tasks=_REPLAY_TASKS).strip()


def reprocess_doc(name: str, tables: Tables) -> str:
    """Markdown for `<name>__reprocess`."""
    return _REPROCESS.format(name=name, with_days=_listed(tables.with_days), tasks=_REPLAY_TASKS).strip()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
