"""The application: all commands, and what happens when one fails."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from deltaworks.cli import (
    batch,
    connect,
    dead_letters,
    demo,
    dev,
    doctor,
    erase,
    explain,
    incidents,
    metrics,
    pipelines,
    projects,
    quality,
    query,
    recovery,
    replay,
    rescale,
    schemas,
    settings,
    sinks,
    stack,
    tables,
    ui,
)
from deltaworks.cli.console import err, out, print_error
from deltaworks.errors import DeltaworksError
from deltaworks.exits import INTERNAL, INTERRUPTED, code_of
from deltaworks.extras import missing

EPILOG = """\
Settings come from the environment (DELTAWORKS_HOME, DELTAWORKS_BOOTSTRAP and others): docs/operations.md.

Exit codes: 0 done; 1 results differ or a check failed; 2 wrong usage; 65 a record failed and the pipeline's policy is
to fail; 69 Kafka, Kafka Connect or Spark is not available; 70 unexpected error; 73 another driver runs this pipeline;
74 the disk is full; 75 conflict with somebody else's work (a replay of the same days, another deployment); 78 topology,
settings, environment or checkpoint do not fit; 130 interrupted.
"""

app = typer.Typer(
    name="deltaworks",
    help="Kafka Streams topologies in Python, run on Spark, stored in Delta Lake.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        out.print(version("deltaworks"))
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of all commands; read by `main`."""


_GROUPS = (
    projects,
    stack,
    settings,
    doctor,
    pipelines,
    query,
    incidents,
    metrics,
    ui,
    dev,
    dead_letters,
    recovery,
    rescale,
    schemas,
    connect,
    tables,
    explain,
    erase,
    replay,
    sinks,
    quality,
    batch,
    demo,
)
for group in _GROUPS:
    group.add_to(app)


def main() -> None:
    """The entry point `deltaworks`."""
    debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app(arguments)
    except DeltaworksError as error:
        _fail(error, debug)
    except ModuleNotFoundError as error:
        _fail(missing(error) or error, debug)
    except KeyboardInterrupt:
        print_error("interrupted")
        sys.exit(INTERRUPTED)
    except Exception as error:
        _fail(error, debug)


def _fail(error: Exception, debug: bool) -> NoReturn:
    if debug:
        err.print_exception()
    if isinstance(error, DeltaworksError):
        print_error(str(error))
        sys.exit(code_of(error))
    print_error(f"unexpected {type(error).__name__}: {error}\n  Hint: --debug shows the traceback")
    sys.exit(INTERNAL)
