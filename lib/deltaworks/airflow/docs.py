"""What the page of a pipeline's DAG says about it."""

from __future__ import annotations

from collections.abc import Iterable

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

A stream that should run and does not is restarted by `streams__reconcile`, as a run of this DAG. Clearing `supervise`
attaches to the same deployment again; clearing `deploy` does not deploy again, trigger a new run for that.

### Topology
```
{topology}
```
"""


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


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
