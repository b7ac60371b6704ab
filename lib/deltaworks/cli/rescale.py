"""The command `rescale`: a stream goes on with more partitions, tasks and cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli.console import AsJson, Steps, out, print_json, print_table, require_agreement
from deltaworks.cli.pipelines import Name, user
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.rescale.rescaling import Change


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(rich_help_panel="Pipelines")(rescale)


def rescale(
    name: Name,
    partitioner: Annotated[
        str | None,
        typer.Option(help="How producers place keys, murmur2 or crc32; default: what new partitions show."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a stream go on with the partitions that its topics have now, and with the cores that there are.

    Its state is spread by key, without a replay. The stream is stopped for it and started again. A topic must get a
    multiple of its partitions. There is no way back. More cores alone need no rescale: the next start uses them.
    """
    from deltaworks.cli import listings
    from deltaworks.errors import ConfigurationError
    from deltaworks.rescale import rescaling
    from deltaworks.runtime.state.splitting import PARTITIONERS

    settings, steps = Settings.from_environment(), Steps(silent=as_json)
    if partitioner is not None and partitioner not in PARTITIONERS:
        raise ConfigurationError(
            f"There is no partitioner {partitioner!r}.", hint=f"partitioners: {', '.join(PARTITIONERS)}"
        )
    with steps.step(f"look at {name} and its topics"):
        change = rescaling.look(settings, name, partitioner=partitioner)
    if not as_json:
        _show(name, change)
    if dry_run or not change.is_needed:
        return print_json(listings.RescaleListed.of(name, change)) if as_json else None
    if not yes:
        require_agreement("Rescale?", "rescale this", hint="--yes rescales without asking")
    with steps.step(f"rescale {name}") as report:
        done = rescaling.rescale(settings, name, by=user(), partitioner=partitioner, report=report)
    if as_json:
        return print_json(listings.RescaleListed.of(name, done.change, done))
    out.print(
        f"{name} goes on with batch {done.first_batch:,} and {sum(after for _, after in done.change.tasks)} tasks; "
        f"its state was spread in {done.seconds:.1f} s",
        markup=False,
        highlight=False,
    )


def _show(name: str, change: Change) -> None:
    if not change.is_needed:
        out.print(f"{name} has all partitions and cores that there are: nothing to do", markup=False, highlight=False)
        return
    rows = [
        *((f"partitions of {topic}", *counts, change.partitioners.get(topic, ""))
          for topic, counts in sorted(change.partitions.items())),
        *((f"tasks of stage {stage}", *counts, "") for stage, counts in enumerate(change.tasks)),
        ("cores that a stage can use", *change.shards, ""),
    ]  # fmt: skip
    print_table(f"What {name} gets", ("what", "before", "after", "keys placed by"), rows, right=("before", "after"))
