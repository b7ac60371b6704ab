"""The commands `ui` and `ui token`: the page of the streams."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from deltaworks.cli.console import out
from deltaworks.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(invoke_without_command=True)
    group.callback()(serve)
    group.command()(token)
    app.add_typer(group, name="ui", rich_help_panel="Pipelines")


def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address; others than this machine need --access and TLS.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: any free one.", min=0, max=65_535)] = 19300,
    access: Annotated[
        Path | None, typer.Option(help="File with clients, see `ui token`; default: anybody on this machine looks.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="Certificate and its chain, in PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="Key of the certificate, in PEM.")] = None,
    airflow: Annotated[
        str | None, typer.Option(help="Airflow's address for browsers; default: the stack's; '': there is none.")
    ] = None,
) -> None:
    """Show all streams of the home in a browser, until Ctrl-C.

    Prints the address. Without --access, it has a token, with which the page also shows why streams fail; without it
    anybody on this machine sees states and numbers.
    """
    if context.invoked_subcommand is not None:
        return
    from deltaworks.ui.serving import Options
    from deltaworks.ui.serving import serve as run

    options = Options(host=host, port=port, access_file=access, certificate=certificate, key=key, airflow=airflow)
    run(Settings.from_environment(), options, lambda url: out.print(url, markup=False, soft_wrap=True))


def token(
    name: Annotated[str, typer.Argument(help="Name of the client.")],
    role: Annotated[
        Literal["viewer", "operator"], typer.Argument(help="Operators also see texts that may quote records.")
    ],
    access: Annotated[Path, typer.Option(help="The file of clients; made if it does not exist.")],
    pipelines: Annotated[
        list[str] | None, typer.Option("--pipeline", help="What it may see, with * for anything; repeatable.")
    ] = None,
) -> None:
    """Make a token for somebody who looks at the page. It is shown once; the file has its digest."""
    from deltaworks.ui.access import add_client

    out.print(add_client(access, name, role, tuple(pipelines or ("*",))), markup=False)
