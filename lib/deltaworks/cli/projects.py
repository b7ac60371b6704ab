"""The commands `init`, `new pipeline`, `new batch` and `test`: a project of your own, what you add, and its tests."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer
from rich.text import Text

from deltaworks.cli.console import out
from deltaworks.errors import ConfigurationError
from deltaworks.names import OWN_TABLE, PIPELINE, hint_of
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "project"
Kind: TypeAlias = Literal["windows", "join", "global-table", "sessions", "suppress", "processor"]
"""What a new pipeline can show; each has a file in `project/shows/`."""
Shows = Annotated[
    Kind,
    typer.Option(
        help="What it shows: an aggregate per window (windows), a stream joined with a table (join) or a global table "
        "(global-table), session windows (sessions), final results into a topic (suppress), or a processor with a "
        "store and a punctuator (processor).",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    app.command(rich_help_panel="Project")(init)
    group = typer.Typer(help="Add a pipeline or a batch job to the project.", no_args_is_help=True)
    group.callback()(lambda: None)
    group.command("pipeline")(new_pipeline)
    group.command("batch")(new_batch)
    app.add_typer(group, name="new", rich_help_panel="Project")
    app.command(rich_help_panel="Project", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
        test
    )


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project, which may exist.")] = Path(),
    pipeline: Annotated[str, typer.Option(help="Name of the first pipeline.")] = "payments",
    shows: Shows = "windows",
) -> None:
    """Make a project: a pipeline with its test, data and checks, settings, CI and containers."""
    from deltaworks.stack.compose import compose_files

    folder = folder.absolute()
    settings = Settings.from_environment({"DELTAWORKS_PROJECT": str(folder)})
    values = {"project": _project_name(folder), "version": _version()} | _names(pipeline)
    files = {
        "README.md": _rendered("README.md", values),
        "pyproject.toml": _rendered("pyproject.toml", values),
        "deltaworks.toml": _rendered("deltaworks.toml", values),
        ".gitignore": _rendered("gitignore", values),
        ".github/workflows/ci.yml": _rendered("ci.yml", values),
        ".github/workflows/replay.yml": _rendered("replay.yml", values),
        "dags/streams.py": _rendered("streams.py", values),
        **compose_files(settings),
        **_pipeline_files(pipeline, shows),
    }
    _write(folder, files)
    out.print(Text(f"{len(files)} files in {folder}; `deltaworks test` runs the tests"))


def new_pipeline(
    name: Annotated[str, typer.Argument(help="Name of the pipeline: its file in jobs/, without `.py`.")],
    shows: Shows = "windows",
) -> None:
    """Add a pipeline with its test, sample data and checks."""
    project = Settings.from_environment().project
    files = _pipeline_files(name, shows)
    _write(project, files)
    for file in files:
        out.print(Text(file))


def new_batch(
    name: Annotated[str, typer.Argument(help="Name of the batch job: its file in jobs/batch/, without `.py`.")],
    reads: Annotated[str, typer.Option(help="The table of a pipeline that it reads.")],
) -> None:
    """Add a batch job with its test: rows of a table per day, to begin with."""
    settings = Settings.from_environment()
    OWN_TABLE.checked(name)
    values = _names(name, "batch job")
    pipeline, time = _table(settings, reads, name)
    row = "".join(word.capitalize() for word in name.split("_"))
    values |= {"pipeline": pipeline, "table": reads, "time": time, "row": row}
    files = {
        f"jobs/batch/{name}.py": _rendered("batch.py", values),
        f"tests/test_{name}_live.py": _rendered("test_batch_live.py", values),
    }
    _write(settings.project, files)
    for file in files:
        out.print(Text(file))


def test(context: typer.Context) -> None:
    """Run the tests of the project with pytest, which gets all further arguments; needs neither Kafka nor Spark."""
    import importlib.util
    import subprocess

    if importlib.util.find_spec("pytest") is None:
        raise ConfigurationError("'pytest' is not installed, which runs the tests.", hint="pip install pytest")
    project = Settings.from_environment().project
    done = subprocess.run([sys.executable, "-m", "pytest", *context.args], cwd=project, check=False)
    raise typer.Exit(done.returncode)


def _pipeline_files(name: str, shows: Kind) -> dict[str, str]:
    """Path below the project -> content."""
    values = {**_names(name), "shows": shows}
    return {
        f"jobs/{name}.py": _rendered("job.py", values),
        f"jobs/sample_data/{name}.py": _rendered("sample_data.py", values),
        f"jobs/quality/{name}.py": _rendered("quality.py", values),
        f"tests/test_{name}.py": _rendered("test_job.py", values),
        f"tests/test_{name}_live.py": _rendered("test_job_live.py", values),
    }


def _table(settings: Settings, table: str, new: str) -> tuple[str, str]:
    """The pipeline that writes a table, and the column with the time of a row.

    Raises:
        ConfigurationError: no pipeline writes it, its rows have no time, or a pipeline writes the `new` table.
    """
    from deltaworks.control import jobs
    from deltaworks.topology.nodes.sinks import TableKind

    found: dict[str, tuple[str, str | None]] = {}
    for name in jobs.names(settings):
        pipeline = jobs.load(settings, name)
        for sink in pipeline.plan().tables:
            found[sink.table] = name, {TableKind.APPEND: "timestamp", TableKind.WINDOWED: "window_start"}.get(sink.kind)
            if sink.kind is TableKind.CHANGELOG:
                found[f"{sink.table}_changelog"] = name, "timestamp"
        if pipeline.dead_letters.table is not None:
            found[pipeline.dead_letters.table] = name, "timestamp"
    if table not in found:
        raise ConfigurationError(
            f"No pipeline of {settings.project} writes a table '{table}'.", hint=hint_of(table, list(found), "tables")
        )
    if new in found:
        raise ConfigurationError(
            f"The pipeline '{found[new][0]}' writes a table '{new}' already.", hint="choose another name"
        )
    name, time = found[table]
    if time is None:
        raise ConfigurationError(
            f"The rows of '{table}' have no time: it is a table of what holds now.", hint=f"--reads {table}_changelog"
        )
    return name, time


def _names(name: str, what: str = "pipeline") -> dict[str, str]:
    PIPELINE.checked(name)
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigurationError(
            f"A {what} cannot be called '{name}': its file is a module of Python.", hint="letters, digits and '_'"
        )
    return {"name": name, "topic": name.replace("_", "-"), "table": name, "title": name.replace("_", " ").capitalize()}


def _project_name(folder: Path) -> str:
    return re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-") or "streams"


def _version() -> str:
    """The range of versions that a new project asks for: this one and what is compatible with it."""
    from importlib.metadata import version

    return f"~={version('deltaworks')}"


def _rendered(template: str, values: Mapping[str, object]) -> str:
    return _templates().get_template(f"{template}.jinja").render(values)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Writes all files, or none if one of them exists."""
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise ConfigurationError(
            f"{folder} has already {', '.join(there)}.", hint="choose another folder or name, or move the files away"
        )
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
