"""The commands `replay`, `replays`, `rollback` and `discard`, which process history again and publish the results."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from deltaworks import clock, home, listeners
from deltaworks.cli.console import AsJson, Steps, first_line, out, print_json, print_table
from deltaworks.cli.pipelines import Name, user
from deltaworks.cli.review import FAIL_ON, Review
from deltaworks.errors import ConfigurationError
from deltaworks.names import PIPELINE
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.control.paths import PipelinePaths
    from deltaworks.lakehouse.publish.ownership import Handover, HandoverRequest
    from deltaworks.lakehouse.publish.publication import PublicationRequest
    from deltaworks.replay.model import Phase, ReplayState
    from deltaworks.replay.phases import ReplayRun, Report

Until = Literal["plan", "run", "compare", "gate", "publish", "verify", "clean"]
_TITLES = {
    "run": "run the batches again and write staging tables",
    "compare": "compare with production",
    "gate": "gate: check the staging tables with suite and invariants",
    "publish": "publish",
    "verify": "verify: compare production with what was published",
    "clean": "clean up",
}


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    for command in (replay, replays, discard, rollback):
        app.command(rich_help_panel="Replays")(command)


def replay(
    name: Name,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="First UTC day to publish; default: the beginning.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="DATE", help="First UTC day not to publish; default: up to the last complete day."
        ),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="Table to publish, repeatable; default: every table that has days."),
    ] = None,
    order: Annotated[
        Literal["recorded", "time"],
        typer.Option(help="The order in which the stream processed the records, or that of their timestamps."),
    ] = "recorded",
    hand_over: Annotated[
        bool,
        typer.Option(
            "--hand-over",
            help="Instead of publishing days, let the stream continue with the replay's stores and tables.",
        ),
    ] = False,
    only_different: Annotated[
        bool,
        typer.Option(
            "--only-different",
            help="Publish only the tables that differ, and their days from the first that differs to the last.",
        ),
    ] = False,
    cascade: Annotated[
        bool,
        typer.Option("--cascade", help="Compute the batch jobs that read what is published again, as part of it."),
    ] = False,
    days: Annotated[
        int | None,
        typer.Option("--days", metavar="N", min=1, help="The newest complete days, in place of `--from` and `--to`."),
    ] = None,
    code_of: Annotated[
        str | None,
        typer.Option(
            "--code",
            metavar="PATH|REF",
            help="Replay with the jobs/ of another folder or git ref. Nothing is published, and the run is removed.",
        ),
    ] = None,
    report_to: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write what would change there, as Markdown.")
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="|".join(FAIL_ON),
            help="Exit code 1 if rows differ, if more differs than `reprocess=` allows, or if the stream could not go "
            "on with its state; repeatable.",
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why you replay; kept in the history of the tables.")] = "",
    until: Annotated[Until, typer.Option(help="Stop after this phase; `--resume` continues.")] = "clean",
    yes: Annotated[bool, typer.Option("--yes", help="Publish without asking if the gate passes.")] = False,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Continue an unfinished run.")] = None,
) -> None:
    """Process a pipeline's history again with the current code; compare, check and publish the results.

    The replay runs from an archive of that code, as does the stream after a handover.
    Nothing that others read changes before the phase `publish`. Exit code 1 if the gate fails.

    Before a merge, `--code REF --days 1 --report report.md --fail-on limit` says what the code of another branch makes
    of the newest day.
    """
    from rich.text import Text

    from deltaworks.cascade.readers import readers
    from deltaworks.control import code
    from deltaworks.replay import runs
    from deltaworks.replay.model import ReplayRequest

    settings, steps = Settings.from_environment(), Steps()
    asked = Review(code_of, report_to, fail_on or ())
    asked.require(until, hand_over=hand_over, yes=yes, resume=resume is not None, cascade=cascade)
    if days is not None and (from_ is not None or to is not None):
        raise ConfigurationError("--days counts back from the newest complete day.", hint="leave out --from and --to")
    home.make(settings)
    listeners.require_own_kafka(settings)
    if code_of is None:
        code.run_from_archive(settings)
    else:
        code.run_other_code(settings, code_of)
        until = "gate"
    if asked.is_first(settings, name):
        out.print(f"{name} has not run here yet: there is nothing to replay.")
        return
    with code.held(settings), steps.step(f"plan a replay of {name}") as report:
        if resume is not None:
            run = runs.resume(settings, resume)
        else:
            from_ms, to_ms = _day(from_, "--from"), _day(to, "--to")
            if days is not None:
                from_ms, to_ms = runs.newest_days(settings, name, tables or (), days)
            request = ReplayRequest(
                pipeline=name,
                from_ms=from_ms,
                to_ms=to_ms,
                tables=tuple(tables or ()),
                order=order,
                hand_over=hand_over,
                complete_days=days is not None,
                only_different=only_different,
                cascade=cascade,
                dry_run=code_of is not None,
                reason=reason,
                requested_by=user(),
            )
            run = runs.start(settings, request)
        plan = run.plan
        report(f"run {plan.run_id}: {plan.extent}, code {plan.code_version}, tables {', '.join(plan.tables)}")
    for note in plan.notes:
        out.print(f"Note: {note}")
    for line in readers(settings, plan).lines:
        out.print(Text(f"Reader: {line}"))
    try:
        with code.held(settings), run.held():
            _work(settings, run, asked, until, yes, steps)
    finally:
        if code_of is not None:
            runs.discard(settings, plan.run_id)


def _work(settings: Settings, run: ReplayRun, asked: Review, until: Until, yes: bool, steps: Steps) -> None:
    """Does the phases; asks and tells what has to be asked and told between them."""
    from deltaworks.cascade import release
    from deltaworks.replay.model import PHASES

    plan, name, begun = run.plan, run.pipeline.name, clock.ticks_s()
    asked.require_limit(run)
    before = until if PHASES.index(until) <= PHASES.index("gate") else "gate"
    state = _advance(run, before, steps)
    equal = plan.request.only_different and state.has_done("compare") and state.narrowed is None
    if PHASES.index(until) >= PHASES.index("gate") and "publish" not in state.done:
        _show(run)
        failures = asked.judged(settings, run, state, clock.ticks_s() - begun) if asked.wanted else []
        for failure in failures:
            out.print(f"Failed on {failure}")
        if not state.passed or failures:
            rest = "" if asked.code else f" deltaworks discard {plan.run_id} removes the staging tables."
            out.print(f"Nothing was published.{rest}")
            raise typer.Exit(1)
        if until != "gate" and not equal and not yes and not _agreed(run):
            out.print(f"Nothing was published. deltaworks replay {name} --resume {plan.run_id} asks again.")
            return
        if until != "gate" and not equal and not (yes and state.approval is not None):
            run.approve(user())  # otherwise it is already approved, for example in Airflow
    if plan.request.cascade and not equal and until in ("verify", "clean"):
        _advance(run, "verify", steps)
        with steps.step("cascade: compute the batch jobs that read it again") as report:
            done = release.complete(settings, plan, run.paths.read_state(), report)
            report(", ".join(f"{job}: {len(days)} days" for job, days in done.days.items()) or "no batch job reads it")
    _advance(run, until, steps)
    if equal and until in ("publish", "verify", "clean"):
        out.print("Production is equal: nothing was published.")
    elif until in ("publish", "verify", "clean"):
        passed = until == "publish" or _is_well(settings, name, plan.run_id, steps)
        out.print(f"deltaworks rollback {plan.run_id} restores the previous rows.")
        if not passed:
            raise typer.Exit(1)


def replays(
    name: Annotated[str | None, typer.Argument(help="Only replays of this pipeline.")] = None, as_json: AsJson = False
) -> None:
    """List unfinished replays and publications."""
    import msgspec

    from deltaworks.control.paths import known_pipelines
    from deltaworks.lakehouse.publish import corrections
    from deltaworks.lakehouse.publish.publication import Publication
    from deltaworks.replay import runs

    settings = Settings.from_environment()
    if name is not None:
        PIPELINE.checked(name, settings.pipelines)
    unfinished = [
        (plan, paths.read_state())
        for paths, plan in runs.all_unfinished(settings)
        if name in (None, plan.request.pipeline)
    ]
    pipelines = [own for own in known_pipelines(settings) if name in (None, own.root.name)]
    files = [file for own in pipelines for file in sorted(own.publications.glob("*.json"))]
    publications = [
        (msgspec.json.decode(file.read_bytes(), type=Publication), corrections.KEEPING.of_run(file.parent, file.stem))
        for file in files
    ]
    handovers = list(_handovers(pipelines))
    if as_json:
        from deltaworks.cli import listings

        return print_json(
            listings.Replays(
                unfinished=[listings.ReplayListed.of(plan, state) for plan, state in unfinished],
                publications=[listings.ChangeListed.of(done, kept) for done, kept in publications],
                handovers=list(map(listings.ChangeListed.of, handovers)),
            )
        )
    print_table(
        "Unfinished replays",
        ("run", "pipeline", "since", "done", "gate", "differences", "error"),
        (
            (
                plan.run_id,
                plan.request.pipeline,
                datetime.fromtimestamp(plan.created_ms // 1000, UTC),
                state.done[-1] if state.done else "",
                None if state.passed is None else ("passed" if state.passed else "failed"),
                state.differences,
                first_line(state.error or ""),
            )
            for plan, state in unfinished
        ),
        right=("differences",),
    )
    people = ("reason", "requested by", "approved by")
    print_table(
        "Publications",
        ("run", "pipeline", "state", "tables", "corrections", *people),
        (
            (
                done.request.run_id,
                done.request.pipeline,
                done.state,
                ", ".join(done.tables),
                ", ".join(f"{each.action} {each.count:,} {'sent' if each.sent_ms else 'waiting'}" for each in kept),
                *_people(done.request),
            )
            for done, kept in publications
        ),
    )
    print_table(
        "Hand-overs",
        ("run", "pipeline", "state", "after batch", *people),
        (
            (done.request.run_id, done.request.pipeline, done.state, done.request.last_batch, *_people(done.request))
            for done in handovers
        ),
        right=("after batch",),
    )


def _people(request: PublicationRequest | HandoverRequest) -> tuple[str, str, str | None]:
    return request.reason, request.requested_by, request.approved_by


def _handovers(pipelines: Iterable[PipelinePaths]) -> Iterator[Handover]:
    from deltaworks.lakehouse.publish import ownership

    return (told for own in pipelines for _, told in ownership.records(own.handovers))


def discard(run: Annotated[str, typer.Argument(help="Id of an unfinished replay.")]) -> None:
    """Remove a replay that was not published."""
    from deltaworks.replay import runs

    runs.discard(Settings.from_environment(), run)
    out.print(f"Run {run} is removed; production is unchanged.")


def rollback(run: Annotated[str, typer.Argument(help="Id of a published replay.")]) -> None:
    """Restore what a replay replaced, in one commit per table; the stream may run.

    After a handover, the previous checkpoint resumes where it stopped; its code has to be back in `jobs/`. Batch jobs
    that were computed again with the replay (`--cascade`) are computed once more.
    """
    from deltaworks.cascade import release
    from deltaworks.replay import handover

    settings, steps = Settings.from_environment(), Steps()
    release.require_jobs(settings, run)
    with steps.step(f"roll back {run}") as report:
        report(handover.take_back(settings, run, requested_by=user(), report=report))
    if release.days_of(settings, run):
        with steps.step("cascade: compute the batch jobs that read it again") as report:
            report(", ".join(release.roll_back(settings, run, report)))


def _advance(run: ReplayRun, until: Until, steps: Steps) -> ReplayState:
    """Does the phases up to `until`; each is a step on the screen."""
    from contextlib import ExitStack

    from deltaworks.cascade.rehearsal import Engines
    from deltaworks.replay.model import PHASES

    state = run.paths.read_state()
    while (phase := state.next) is not None and PHASES.index(phase) <= PHASES.index(until):
        with ExitStack() as stack:

            def report_of(phase: Phase, stack: ExitStack = stack) -> Report:
                handing_over = phase == "publish" and run.plan.request.hand_over
                return stack.enter_context(steps.step("hand over" if handing_over else _TITLES[phase]))

            state = run.advance(phase, report_of, Engines)
        if phase not in state.done:
            break
    return state


def _show(run: ReplayRun) -> None:
    """Prints what the run would change and what the gate found."""

    from deltaworks.cli.quality import print_verdicts
    from deltaworks.cli.replay_report import print_comparison
    from deltaworks.replay.report import comparison_of, verdicts_of

    print_comparison(comparison_of(run.paths))
    verdicts = verdicts_of(run.paths)
    if all(verdict.passed for verdict in verdicts):
        out.print(f"Gate: all {len(verdicts)} checks passed.")
    else:
        print_verdicts("Gate", verdicts, only_failed=True)


def _is_well(settings: Settings, name: str, run_id: str, steps: Steps) -> bool:
    """Checks production with the invariants and the job's suite, if it has one; prints what fails."""
    from deltaworks.cli.quality import print_verdicts
    from deltaworks.control import jobs
    from deltaworks.quality import production

    if name not in jobs.names_with(settings, "quality"):
        return True
    with steps.step("quality: check production with suite and invariants") as report:
        verdicts = production.check(settings, name, run_id=f"published__{run_id}")
        report(f"{len(verdicts)} checks, {sum(verdict.blocks for verdict in verdicts)} not passed")
    if all(verdict.passed for verdict in verdicts):
        return True
    print_verdicts(f"Quality of {name}", verdicts, only_failed=True)
    return not any(verdict.blocks for verdict in verdicts)


def _agreed(run: ReplayRun) -> bool:
    run_id, request = run.plan.run_id, run.plan.request
    if not sys.stdin.isatty():
        raise ConfigurationError(
            f"Run {run_id} passed the gate, but there is no terminal to ask whether to publish it.",
            hint=f"deltaworks replay ... --resume {run_id} --yes",
        )
    return typer.confirm("Hand the stream over?" if request.hand_over else "Publish?")


def _day(text: str | None, option: str) -> int | None:
    """The first millisecond of a date."""
    if text is None:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{option} is {text!r}, which is not a date.", hint=f"{option} 2026-11-22") from None
    return (day - date(1970, 1, 1)) // timedelta(milliseconds=1)
