"""The commands `connect`: connectors of Kafka Connect, as the files in `jobs/connectors` have them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from deltaworks.cli.console import (
    AsJson,
    Steps,
    bytes_text,
    lag_text,
    out,
    print_json,
    print_table,
    require_agreement,
    shortened,
)
from deltaworks.errors import ConfigurationError, ControlUnavailableError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltaworks.connect.answers import Status
    from deltaworks.connect.api import ConnectApi
    from deltaworks.connect.checks import Problem
    from deltaworks.connect.planning import Change, Plan
    from deltaworks.connectors.dead_letters import Letter
    from deltaworks.connectors.resends import Resend
    from deltaworks.connectors.sweep import Swept
    from deltaworks.topology.records import Coordinates

_TEXT, _SHORT = 100, 40
_COLOR = {"RUNNING": "green", "FAILED": "red", "new": "green", "changed": "yellow", "unknown": "dim"}
_ONLY_HERE = "only in the cluster: no file in jobs/connectors"

Files = Annotated[
    list[str] | None, typer.Argument(help="Connectors of the project: files in jobs/connectors; default: all.")
]
Names = Annotated[list[str] | None, typer.Argument(help="Connectors of the cluster; default: all.")]
Chosen = Annotated[list[str], typer.Argument(help="Connectors of the cluster.")]
Name = Annotated[str, typer.Argument(help="A connector of the cluster.")]
AllowUndefined = Annotated[
    bool,
    typer.Option("--allow-undefined", help="Send settings that a class does not define, even if they look misspelt."),
]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(help="Connectors of Kafka Connect, from files in jobs/connectors.", no_args_is_help=True)
    for command in (validate, plan, apply, status, restart, pause, resume, stop, offsets, delete, resend, sweep):
        group.command()(command)
    group.command("dead-letters")(list_dead_letters)
    app.add_typer(group, name="connect", rich_help_panel="Pipelines")


def validate(
    names: Files = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no worker: only what the files show.")] = False,
    allow_undefined: AllowUndefined = False,
) -> None:
    """Check connectors of the project: their files, and what a worker says of each setting. Changes nothing.

    Exit code 78 if something is wrong.
    """
    from deltaworks.connect import planning, project

    settings = Settings.from_environment()
    connectors = project.load_all(settings, names or ())
    if offline:
        problems, notes = planning.validate(connectors, None)
        where = ""
    else:
        with _api(settings) as api:
            locked = _locked(settings, api)
            problems, notes = planning.validate(connectors, api, undefined=allow_undefined, locked=locked)
            where = api.url
    _show_notes(notes)
    planning.require_none(problems, where)
    if not connectors:
        return _say_none(settings)
    print_table(
        "Connectors that fit",
        ("connector", "class", "settings"),
        ((name, each.class_, len(each.properties)) for name, each in connectors.items()),
        right=("settings",),
    )


def plan(
    names: Files = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit code 1 if applying would change something.")
    ] = False,
    allow_undefined: AllowUndefined = False,
    as_json: AsJson = False,
) -> None:
    """Show what `apply` would change in the cluster, setting by setting; secrets are masked. Changes nothing.

    Exit code 78 if a connector does not fit, 0 else; with --exit-code, 1 if something would change.
    """
    from deltaworks.cli import listings

    settings = Settings.from_environment()
    with _api(settings) as api:
        planned = _planned(settings, api, names, allow_undefined)
    if as_json:
        print_json(listings.ConnectorsPlanned.of(planned))
    else:
        _show_plan(settings, planned)
    planned.require_sound()
    if exit_code and planned.pending:
        raise typer.Exit(1)


def apply(
    names: Files = None,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait until what was applied runs.")
    ] = 30.0,
    allow_undefined: AllowUndefined = False,
) -> None:
    """Create and change connectors in the cluster as the project has them, once all checks have passed.

    What only the cluster has stays; `delete` deletes it. Exit code 78 if a connector does not fit, and nothing was
    changed; 1 if one of those that were applied, or a task of it, has failed.
    """
    from deltaworks.connect import planning, states

    settings, steps = Settings.from_environment(), Steps()
    with _api(settings) as api:
        with steps.step("compare and validate") as report:
            planned = _planned(settings, api, names, allow_undefined)
            report(_summary(planned))
        _show_plan(settings, planned)
        planned.require_sound()
        applied = [change.name for change in planned.pending]
        if not applied:
            return
        planning.apply(planned, api, _show_applied)
        if not wait:
            return
        with steps.step("wait until they run") as report:
            found = states.wait(api, applied, wait, report)
            report(states.in_words(found))
    _show_failures(found.connectors)
    if found.has_failures:
        raise typer.Exit(1)


def status(names: Names = None, as_json: AsJson = False) -> None:
    """Show connectors and their tasks: state, worker, why tasks have failed, and replication slots in danger."""
    from deltaworks.connect import project, states
    from deltaworks.connectors import dead_letters, slots
    from deltaworks.connectors.lags import lags_soon
    from deltaworks.connectors.overview import LAGS_S

    settings = Settings.from_environment()
    with _api(settings) as api:
        found = states.look(api, names or ())
        shown = {each.name for each in found.connectors}
        configs = {name: each for name, each in api.configs().items() if name in shown}
        counted = dead_letters.counts_soon(settings.cluster, api, configs)
        sinks = [each.name for each in found.connectors if each.type == "sink"]
        lags = lags_soon(settings.cluster, api, sinks, within_s=LAGS_S)
        connectors, statuses = project.load_each(settings).connectors, {each.name: each for each in found.connectors}
        of_slots = slots.seen_soon(settings, api, connectors, statuses)
    letters = {name: each.total for name, each in (counted or {}).items()}
    troubles = {name: each.trouble.told for name, each in of_slots.items() if each.trouble is not None}
    behind = {name: each.slot.behind_bytes for name, each in of_slots.items() if each.slot is not None}
    if as_json:
        from deltaworks.cli import listings

        return print_json(listings.Connectors.of(found, letters, troubles, lags, behind))
    print_table(
        f"Connectors of {found.url}",
        ("connector", "type", "task", "state", "worker", "lag", "dead letters", "error"),
        (
            row
            for each in found.connectors
            for row in _state_rows(each, letters.get(each.name), lag_text(lags.get(each.name), behind.get(each.name)))
        ),
        right=("task", "lag", "dead letters"),
    )
    for name, told in troubles.items():
        out.print(Text(f"{name}: {told}", "red"))
    if counted is None:
        told = "note: dead letters are not counted: Kafka of [kafka] is slow, or not the one of Kafka Connect"
        out.print(Text(told, "dim"))
    out.print(
        f"{len(found.connectors):,} connectors, {len(found.tasks):,} tasks, {len(found.failed_tasks):,} failed",
        highlight=False,
    )


def restart(
    names: Names = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only what has failed; without a name, of all connectors.")
    ] = False,
    task: Annotated[int | None, typer.Option(min=0, help="Only this task of the connector.")] = None,
) -> None:
    """Restart connectors with all their tasks, or only what has failed. Records that were read may come again."""
    from deltaworks.connect import states

    if not names and not failed:
        raise ConfigurationError("Nothing says what to restart.", hint="name connectors, or give --failed")
    if task is not None and (failed or len(names or ()) != 1):
        raise ConfigurationError("--task is the task of one connector, and --failed is none.", hint="NAME --task 0")
    with _api(Settings.from_environment()) as api:
        there = states.look(api, names or ()).connectors
        if task is not None:
            api.restart_task(there[0].name, task)
            return out.print(f"{there[0].name}: task {task} restarts", markup=False)
        chosen = [each for each in there if not failed or states.has_failed(each)]
        for each in chosen:
            api.restart(each.name, only_failed=failed)
            tasks = [str(task.id) for task in each.tasks if not failed or task.state == states.FAILED]
            out.print(f"{each.name}: tasks {', '.join(tasks) or 'none'} restart", markup=False)
    if not chosen:
        out.print("nothing has failed")


def pause(names: Chosen) -> None:
    """Let connectors process nothing; their tasks keep what they hold, such as connections."""
    _each(names, "paused", lambda api: api.pause)


def resume(names: Chosen) -> None:
    """Let connectors go on that are paused or stopped."""
    _each(names, "resumed", lambda api: api.resume)


def stop(names: Chosen) -> None:
    """End the tasks of connectors, which stay with their settings and offsets; `resume` starts them again."""
    _each(names, "stopped", lambda api: api.stop)


def offsets(
    name: Name,
    reset: Annotated[bool, typer.Option("--reset", help="Forget them; the connector has to be stopped.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far a connector is, or forget it: then it begins again when it is resumed.

    A source that begins again takes its snapshot anew; a sink reads its topics from the beginning, unless its
    consumers are told otherwise.
    """
    from deltaworks.connect import states
    from deltaworks.connectors import sweep as sweeping

    if reset and as_json:
        raise ConfigurationError("--reset and --json exclude each other.", hint="give one of them")
    settings = Settings.from_environment()
    with _api(settings) as api:
        if reset:
            states.require_stopped(api, name)
        found = api.offsets(name)
        if as_json:
            from deltaworks.cli import listings

            return print_json(listings.ConnectorOffsets.of(name, found))
        print_table(
            f"Offsets of {name}",
            ("partition", "offset"),
            ((_in_json(each.partition), _in_json(each.offset)) for each in found),
        )
        if not reset:
            return
        if not yes:
            require_agreement("Forget them?", "forget these offsets", hint="--yes forgets them without asking")
        if (note := sweeping.reset(settings, api, name)) is not None:
            out.print(Text(f"note: {note}", "dim"))
    out.print(f"{name} begins again: deltaworks connect resume {name}", markup=False, highlight=False)


def sweep(
    name: Name,
    topic: Annotated[list[str], typer.Option("--topic", help="A topic of a table; may be given several times.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also most rows of a topic, or those of a table that is empty now, or that nobody knows."
        ),
    ] = False,
) -> None:
    """Delete from topics what the new snapshot of a source does not have: rows that went while it read nothing.

    The offsets were reset, the snapshot is complete, and the connector is stopped. Each key whose last record is older
    than the reset gets a null, which tables and sinks take for the deletion.
    """
    from deltaworks.connectors import sweep as sweeping

    settings = Settings.from_environment()
    with _api(settings) as api:
        planned = sweeping.plan(settings, api, name, topic)
        print_table(
            f"Rows of {name}",
            ("topic", "there", "gone", ""),
            ((each.topic, each.rows, each.gone, _note_of(each)) for each in planned.topics),
            right=("there", "gone"),
        )
        if not all(each.whole for each in planned.topics):
            out.print("Rows whose last record is in no topic any more are not found: it is not compacted.")
        if dry_run or not planned.count:
            return
        if not force:
            planned.require_likely()
        if not yes:
            require_agreement("Delete those that are gone?", "delete them", hint="--yes deletes without asking")
        sent = sweeping.send(settings, api, planned, force=force)
    if sent < planned.count:
        out.print(f"{planned.count - sent:,} stay: somebody has written them since", highlight=False)
    out.print(f"{sent:,} deleted: deltaworks connect resume {name}", markup=False, highlight=False)


def _note_of(swept: Swept) -> str:
    notes = ["" if swept.whole else "the beginning of the topic is gone", swept.doubt or ""]
    return "; ".join(filter(None, notes))


def delete(name: Name, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Delete a connector from the cluster. Its offsets stay: one of this name goes on where it was."""
    from deltaworks.connect import project

    settings = Settings.from_environment()
    with _api(settings) as api:
        api.require(name)
        if not yes:
            require_agreement(f"Delete {name}?", f"delete {name}", hint="--yes deletes it without asking")
        _forget(settings, name)
        api.delete(name)
    out.print(f"{name} is deleted", markup=False, highlight=False)
    if (file := project.files(settings).get(name)) is not None:
        out.print(f"jobs/connectors/{file.name} is still there: `apply` makes it again", markup=False, highlight=False)


def list_dead_letters(
    name: Annotated[str | None, typer.Argument(help="A sink of the cluster, to see its newest ones.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Dead letters to list at most, the latest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Count the records on which sinks have failed, by connector and topic; of one sink, list the newest, and why."""
    from deltaworks.connectors import dead_letters, resends

    settings = Settings.from_environment()
    with _api(settings) as api:
        if name is None:
            configs = api.configs()
            dead_letters.require_cluster(settings.cluster, api)
        else:
            configs = {name: resends.of_connector(settings, api, name)[0]}
        url = api.url
    counts = dead_letters.counts(settings.cluster, configs)
    letters = []
    if name is not None and counts[0].exists:
        letters = dead_letters.newest(settings.cluster, name, counts[0].topic, limit)
    if as_json:
        from deltaworks.cli import listings

        return print_json(listings.SinkLetters.of(url, counts, letters))
    if not counts:
        return out.print("no connector keeps dead letters: dead_letters= of a sink names a topic for them")
    print_table(
        "Dead letters of sinks",
        ("connector", "topic", "total", "of the last 24 hours"),
        ((each.connector, each.topic, each.total, each.recent) for each in counts),
        right=("total", "of the last 24 hours"),
    )
    if letters:
        _show_letters(letters)


def resend(
    name: Name,
    all_of_them: Annotated[bool, typer.Option("--all", help="All dead letters that were not sent yet.")] = False,
    offset: Annotated[
        list[str] | None,
        typer.Option("--offset", metavar="TOPIC-PARTITION@OFFSET", help="This one, as `dead-letters` lists it."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send records on which a sink has failed again, after a repair: each once, to the topic where it was.

    A record has its bytes, its time and its own headers again, and a header that says that it is a repetition. Streams
    skip it; other sinks and consumers of the topic take it, too.
    """
    from deltaworks.cli import listings
    from deltaworks.cli.pipelines import user
    from deltaworks.connectors import resends

    if all_of_them == bool(offset):
        raise ConfigurationError(
            "Nothing, or too much, says what to send.", hint="--all, or --offset TOPIC-PARTITION@OFFSET, once or more"
        )
    settings, steps = Settings.from_environment(), Steps(silent=as_json)
    only = _places(offset) if offset else None
    with _api(settings) as api:
        planned = resends.plan(settings, api, name, only)
    if not as_json:
        _show_resend(planned)
    if dry_run or not planned.count:
        return print_json(listings.SinkResent.of(planned, 0)) if as_json else None
    if not yes:
        require_agreement("Send?", "send these", hint="--yes sends without asking", silent=as_json)
    with steps.step(f"send {planned.count:,} records to {', '.join(planned.topics)}") as report:
        sent = resends.send(settings, planned, by=user(), report=lambda count: report(f"{count:,} sent"))
    if as_json:
        return print_json(listings.SinkResent.of(planned, sent))
    out.print(f"{sent:,} sent. Those that fail again are dead letters again: deltaworks connect dead-letters {name}")


def _places(given: Sequence[str]) -> set[Coordinates]:
    from deltaworks.topology.records import Coordinates

    try:
        return {Coordinates.of(each) for each in given}
    except ValueError as error:
        raise ConfigurationError(f"{error}.", hint="--offset orders_failed-0@12, as `dead-letters` lists it") from None


def _show_letters(letters: Sequence[Letter]) -> None:
    print_table(
        "The newest",
        ("dead letter", "record", "time (UTC)", "key", "value", "stage", "error", "why"),
        (
            (
                each.at.name,
                "" if each.record is None else each.record.name,
                "" if each.timestamp is None else f"{each.timestamp:%Y-%m-%d %H:%M:%S}",
                bytes_text(each.key, _SHORT),
                bytes_text(each.value, _SHORT),
                each.stage,
                each.error_class.rpartition(".")[2],
                shortened(each.why, _TEXT),
            )
            for each in letters
        ),
    )


def _show_resend(planned: Resend) -> None:
    from deltaworks.topology.resend import HEADER

    print_table(
        f"{planned.count:,} dead letters of {planned.connector} can be sent again",
        ("stage", "error", "count", "sent again?", "failed again"),
        ((each.stage, each.error_class, each.count, each.stays or "yes", each.again or "") for each in planned.groups),
        right=("count", "failed again"),
    )
    if planned.count:
        topics = ", ".join(planned.topics)
        told = f"Streams that read {topics} skip them; other sinks and consumers take them, with the header {HEADER}."
        out.print(told, markup=False)
        out.print("A sink that keeps the newest row of each key takes them for newer than what came since.")


def _forget(settings: Settings, name: str) -> None:
    """Says in the registry, if there is one, that nobody deploys the connector again; first, so that nobody does."""
    try:
        from deltaworks.cli.pipelines import user
        from deltaworks.control.connector_book import DELETED, ConnectorBook

        ConnectorBook.of(settings).desire(name, DELETED, by=user())
    except (ControlUnavailableError, ModuleNotFoundError) as error:
        why = error.message if isinstance(error, ControlUnavailableError) else "deltaworks[control] is not installed"
        told = f"note: if streams__reconcile watches {name}, it deploys it again; delete it then ({why})"
        out.print(Text(told, "dim"))


def _api(settings: Settings) -> ConnectApi:
    from deltaworks.connect.api import ConnectApi

    return ConnectApi.of(settings)


def _each(names: Sequence[str], done: str, method: Callable[[ConnectApi], Callable[[str], None]]) -> None:
    with _api(Settings.from_environment()) as api:
        api.require(*names)
        for name in names:
            method(api)(name)
            out.print(f"{name} is {done}", markup=False, highlight=False)


def _planned(settings: Settings, api: ConnectApi, names: list[str] | None, undefined: bool) -> Plan:
    from deltaworks.connect import planning, project
    from deltaworks.connectors import dead_letters

    connectors = project.load_all(settings, names or ())
    topics = dead_letters.topics_soon(settings.cluster, api)
    locked = _locked(settings, api)
    return planning.plan(connectors, api, whole=not names, undefined=undefined, topics=topics, locked=locked)


def _locked(settings: Settings, api: ConnectApi) -> Mapping[str, str]:
    from deltaworks.stack import connect_plugins

    return connect_plugins.versions(settings, api.url)


def _show_plan(settings: Settings, planned: Plan) -> None:
    rows = [row for change in planned.changes for row in _change_rows(change)]
    if not rows:
        return _say_none(settings)
    print_table(f"Connectors of {planned.url}", ("connector", "", "setting", "before", "after"), rows)
    _show_notes(planned.notes)
    if not planned.problems:
        out.print(_summary(planned), highlight=False)


def _change_rows(change: Change) -> list[tuple[object, ...]]:
    kind = Text(change.kind, _COLOR.get(change.kind, ""))
    if change.kind == "unknown":
        return [(change.name, kind, _ONLY_HERE, "", "")]
    if not change.settings:
        return [(change.name, kind, "", "", "")]
    rows = [(each.setting, each.before, each.after) for each in change.settings]
    return [(change.name, kind, *rows[0]), *(("", "", *row) for row in rows[1:])]


def _summary(planned: Plan) -> str:
    kinds = [change.kind for change in planned.changes]
    return f"{kinds.count('new'):,} new, {kinds.count('changed'):,} changed, {kinds.count('unchanged'):,} unchanged"


def _say_none(settings: Settings) -> None:
    from deltaworks.connect import project

    out.print(f"no connectors in {project.folder(settings)}", markup=False, highlight=False)


def _show_notes(notes: Sequence[Problem]) -> None:
    for note in notes:
        out.print(Text(f"note: {note}", "dim"))


def _show_applied(change: Change) -> None:
    out.print(f"{change.name} is {'created' if change.kind == 'new' else 'changed'}", markup=False, highlight=False)


def _show_failures(found: Sequence[Status]) -> None:
    from deltaworks.connect import states

    for each in filter(states.has_failed, found):
        for row in _state_rows(each):
            if row[-1]:
                out.print(Text(f"{each.name}: {row[-1]}", "red"))


def _state_rows(status: Status, letters: int | None = None, lag: str = "") -> list[tuple[object, ...]]:
    from deltaworks.connect.states import why

    rows: list[tuple[object, ...]] = [
        (status.name, status.type, "", _state(status.connector.state), status.connector.worker_id, lag,
         "" if letters is None else letters, why(status.connector.trace) or "")
    ]  # fmt: skip
    return rows + [
        ("", "", task.id, _state(task.state), task.worker_id, "", "", why(task.trace) or "") for task in status.tasks
    ]


def _state(state: str) -> Text:
    return Text(state, _COLOR.get(state, "yellow"))


def _in_json(value: object) -> str:
    return shortened(json.dumps(value), _TEXT)
