"""The commands `store serve` and `store token`: the stores of running streams over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deltaworks.cli.console import out
from deltaworks.settings import Settings


def add_to(group: typer.Typer) -> None:
    """Registers the commands in the group `store`."""
    group.command()(serve)
    group.command()(token)


def serve(
    host: Annotated[str, typer.Option(help="Address; others than this machine need --access and TLS.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: any free one.", min=0, max=65_535)] = 19200,
    access: Annotated[
        Path | None, typer.Option(help="File with clients, see `store token`; default: anybody on this machine.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="Certificate and its chain, in PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="Key of the certificate, in PEM.")] = None,
    rate: Annotated[float | None, typer.Option(help="Requests per second and client; default: any number.")] = None,
) -> None:
    """Answer questions about the stores of running streams over HTTP, until Ctrl-C."""
    from deltaworks.query_server.serving import Options
    from deltaworks.query_server.serving import serve as run

    options = Options(host=host, port=port, access_file=access, certificate=certificate, key=key, rate=rate)
    run(Settings.from_environment(), options, lambda url: out.print(f"{url}/pipelines", markup=False))


def token(
    name: Annotated[str, typer.Argument(help="Name of the client.")],
    stores: Annotated[list[str], typer.Argument(help="What it may read: pipeline/store, with * for anything.")],
    access: Annotated[Path, typer.Option(help="The file of clients; made if it does not exist.")],
) -> None:
    """Make a token for a client of `store serve`. It is shown once; the file has its digest."""
    from deltaworks.query_server.access import add_client

    out.print(add_client(access, name, tuple(stores)), markup=False)
