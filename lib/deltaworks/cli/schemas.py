"""The commands `schema generate` and `schema check`: schemas of a registry, and of pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli.console import Force, out, print_table, write_files
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.serdes.schemas import Registered

_FILES = (".avsc", ".proto")


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(help="Types of schemas; whether formats fit the schema registry.", no_args_is_help=True)
    group.command()(generate)
    group.command()(check)
    app.add_typer(group, name="schema", rich_help_panel="Pipelines")


def generate(
    source: Annotated[
        str, typer.Argument(help="An .avsc or .proto file; or a topic or subject of the schema registry.")
    ],
    message: Annotated[
        str | None, typer.Option(help="Full name of the message; default: the only one of the .proto file.")
    ] = None,
    version: Annotated[int | None, typer.Option(help="Of the subject; default: the newest.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file; default: the terminal.")] = None,
    force: Force = False,
) -> None:
    """Write the Python types of a schema of Avro or Protobuf."""
    from deltaworks.serdes import source as types

    is_file = source.endswith(_FILES)
    if is_file and version is not None:
        raise ConfigurationError("--version is that of a subject, and a file has none.", hint="leave it out")
    if is_file and not Path(source).is_file():
        raise ConfigurationError(f"There is no file {source}.")
    schema = Path(source) if is_file else _version(Settings.from_environment(), source, version).schema
    try:
        text = types.generate(schema, message=message)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{source}: {error}") from error
    if output is None:
        out.out(text, end="", highlight=False)
    else:
        write_files({output: text}, force=force)


def check(name: Annotated[str, typer.Argument(help="Name of the pipeline.")]) -> None:
    """Compare the formats of a pipeline with the schema registry, as `deploy` does before it changes anything."""
    from deltaworks.control import jobs, schemas
    from deltaworks.topology.registered import uses

    settings = Settings.from_environment()
    plan, registry = jobs.load(settings, name).plan(), jobs.schemas_of(settings, name)
    checked = schemas.check(plan, registry)
    print_table(
        f"Formats of {name}",
        ("what", "format", "subject", ""),
        ((use.of, use.serde.name, use.subject, "read" if use.topics else "written") for use in uses(plan)),
    )
    for line in checked.lines:
        out.print(line, markup=False)


def _version(settings: Settings, subject: str, version: int | None) -> Registered:
    """A version of a subject, or of the values of a topic."""
    from deltaworks.kafka.schemas_of_settings import registry_of

    registry = registry_of(settings.values.table("schema_registry"))
    found = registry.versions(subject) or registry.versions(f"{subject}-value")
    if not found:
        raise ConfigurationError(
            f"The schema registry has no subject '{subject}' or '{subject}-value'.",
            hint=f"is it a file? Its name ends with {' or '.join(_FILES)}",
        )
    for each in found:
        if (version is None and each is found[-1]) or each.version == version:
            return each
    numbers = ", ".join(str(each.version) for each in found)
    raise ConfigurationError(f"'{subject}' has no version {version} in the schema registry.", hint=f"it has {numbers}")
