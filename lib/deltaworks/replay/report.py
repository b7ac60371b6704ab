"""Tells what a replay would change and what the gate found; as Markdown, for who approves it or reviews its code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from deltaworks.lakehouse.publish.comparison import Comparison, TableComparison
from deltaworks.quality.verdict import Outcome, Verdict
from deltaworks.replay.model import Narrowed, ReplayPaths, ReplayPlan, ReplayState, range_of

_MOST = 10
"""How many days, columns and findings of a table are shown, so that the page stays readable."""
_ANSWER = """**Approve** publishes the replay in one commit per table, even while the stream runs;
`deltaworks rollback {run}` restores what it replaced. **Reject** removes it."""
_ANSWER_HAND_OVER = """**Approve** stops the stream, lets the replay catch up with it, and lets the stream go on with \
the stores and tables of the replay; `deltaworks rollback {run}` undoes that, with the code of before. **Reject** \
removes the replay."""


def markdown(
    paths: ReplayPaths, plan: ReplayPlan, state: ReplayState, why: str | None = None, readers: Sequence[str] = ()
) -> str:
    """The body of the approval page.

    Args:
        paths: files of a run that is compared and has passed the gate.
        plan: plan of the run.
        state: state of the run.
        why: why somebody is asked, if the form does not say so.
        readers: who reads what is published, a line each.
    """
    parts = [
        *([f"You are asked because {_text(why)}."] if why is not None else []),
        *_run(plan, state),
        *_differences(comparison_of(paths)),
        *_gate(verdicts_of(paths)),
        *_readers(readers),
        "### Your answer",
        (_ANSWER_HAND_OVER if plan.request.hand_over else _ANSWER).format(run=plan.run_id),
    ]
    return "\n\n".join(parts)


def review(
    paths: ReplayPaths,
    plan: ReplayPlan,
    state: ReplayState,
    *,
    code: str,
    fits: str,
    seconds: float,
    readers: Sequence[str] = (),
) -> str:
    """What other code makes of recorded history, for whoever decides about that code.

    Args:
        paths: files of a run that is compared and was judged by the gate.
        plan: plan of the run.
        state: state of the run.
        code: where the code is from.
        fits: whether the stream can go on with its state, for people.
        seconds: how long the replay took.
        readers: who would read what is published, a line each.
    """
    rate = f"{plan.records:,} records in {seconds:,.1f} s"
    more = [("Code from", _text(code)), ("State", _text(fits)), ("Duration", rate)]
    parts = [
        f"## `{plan.request.pipeline}` on recorded history",
        *_run(plan, state, more),
        *_differences(comparison_of(paths)),
        *_gate(verdicts_of(paths)),
        *_readers(readers),
    ]
    return "\n\n".join(parts) + "\n"


def comparison_of(paths: ReplayPaths) -> Comparison:
    """How production differs from a run that is compared; with the batch jobs behind it, once they are rehearsed."""
    found = msgspec.json.decode(paths.comparison.read_bytes(), type=Comparison)
    if not paths.rehearsal.exists():
        return found
    behind = msgspec.json.decode(paths.rehearsal.read_bytes(), type=tuple[TableComparison, ...])
    return msgspec.structs.replace(found, tables=(*found.tables, *behind))


def verdicts_of(paths: ReplayPaths) -> list[Verdict]:
    """What the gate found in a run."""
    return msgspec.json.decode(paths.verdicts.read_bytes(), type=list[Verdict])


def _run(plan: ReplayPlan, state: ReplayState, more: Sequence[tuple[str, str]] = ()) -> Iterator[str]:
    request = plan.request
    yield _table(
        ("", ""),
        [
            ("Replay", f"`{plan.run_id}`"),
            ("Requested by", _text(request.requested_by)),
            ("Why", _text(request.reason)),
            ("Days", f"{range_of(state.from_ms, state.to_ms)} (exclusive), UTC"),
            ("Read", f"{plan.extent}, {request.order} order"),
            ("Code", f"`{plan.code_version}`"),
            *([("To publish", _narrowed(state.narrowed))] if state.narrowed is not None else []),
            *([("Already approved by", _text(state.approval.by))] if state.approval is not None else []),
            *more,
        ],
    )


def _narrowed(chosen: Narrowed) -> str:
    """Less than the whole replay: only what differs."""
    tables = ", ".join(f"`{table}`" for table in chosen.tables)
    return f"only what differs: {tables}, {range_of(chosen.from_ms, chosen.to_ms)} (exclusive)"


def _differences(comparison: Comparison) -> Iterator[str]:
    yield "### What would change"
    yield "Nothing: every row equals production." if comparison.equal else f"{comparison.differences:,} rows differ."
    yield _table(
        ("Table", "In production", "In the replay", "Equal", "Changed", "Only in production", "Only in the replay"),
        (
            (
                f"`{table.table}`",
                *map(_number, (table.rows.production, table.rows.staging, table.rows.equal, table.rows.changed)),
                *map(_number, (table.rows.only_production, table.rows.only_staging)),
            )
            for table in comparison.tables
        ),
        numbers=True,
    )
    for table in comparison.tables:
        if lines := list(_details(table)):
            yield f"**{table.table}**"
            yield "\n".join(f"- {line}" for line in lines)


def _details(table: TableComparison) -> Iterator[str]:
    columns = sorted(((count, name) for name, count in table.columns.items() if count), reverse=True)
    if columns:
        yield "changed: " + _some([f"`{name}` in {count:,} rows" for count, name in columns])
    days = [str(day) for day in table.days if day.different]
    if days:
        yield "days: " + _some(days)
    for what, names in (
        ("columns that production does not have", table.new_columns),
        ("columns that only production has", table.gone_columns),
        ("days that are not published because their windows may still change", table.open_days),
    ):
        if names:
            yield f"{what}: {_some(names)}"


def _gate(verdicts: Sequence[Verdict]) -> Iterator[str]:
    found = [verdict for verdict in verdicts if not verdict.passed]
    yield "### What the gate found"
    yield f"{len(verdicts) - len(found):,} of {len(verdicts):,} expectations and invariants hold."
    if found:
        yield _table(
            ("Table", "Expected", "Found", "Severity"),
            (
                (f"`{verdict.table}`", _text(verdict.expects), _finding(verdict), _text(verdict.severity))
                for verdict in found[:_MOST]
            ),
        )
    if len(found) > _MOST:
        yield f"... and {len(found) - _MOST:,} more."


def _readers(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield "### Who reads it"
        yield "\n".join(f"- {_text(line)}" for line in lines)


def _finding(verdict: Verdict) -> str:
    if verdict.outcome is Outcome.ERROR:
        return _text(f"not checked: {verdict.error}")
    if verdict.unexpected is not None:
        return f"{verdict.unexpected:,} of {verdict.rows or 0:,} rows"
    return _text(verdict.observed or "")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    sides = ["---", *(["---:" if numbers else "---"] * (len(columns) - 1))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, sides, *rows))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


def _number(number: int) -> str:
    return f"{number:,}"


def _text(text: str) -> str:
    """Foreign text for a table cell: one line, with Markdown and HTML escaped."""
    line = " ".join(text.split())
    for sign in "\\`*_[]|":
        line = line.replace(sign, "\\" + sign)
    return line.replace("<", "&lt;").replace(">", "&gt;")
