"""The command `config show`: which settings hold, and where they are from."""

from __future__ import annotations

import re
from typing import Any

import typer
from rich.text import Text

from deltaworks import config
from deltaworks.cli.console import AsJson, out, print_json, print_table
from deltaworks.settings import Settings

_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*(?=@)")


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(help="Show the settings.", no_args_is_help=True)
    group.command()(show)
    app.add_typer(group, name="config", rich_help_panel="Stack")


def show(as_json: AsJson = False) -> None:
    """Show the settings that hold and where each is from; secrets are masked."""
    settings = Settings.from_environment()
    file = settings.project / config.FILE
    rows = [
        (key, variable, shown(settings, key, variable), settings.values.origin(variable))
        for key, variable in sorted(config.KEYS.items())
    ]
    rows += [
        (
            f"pipelines.{pipeline}.{kind}.{name}" if pipeline else f"{kind}.{name}",
            config.kafka_variable(name) if kind == "kafka" else "",
            _setting_shown(settings.values.tables[kind, pipeline][name]),
            origin,
        )
        for ((kind, pipeline), name), origin in sorted(settings.values.table_origins.items())
    ]
    if as_json:
        from deltaworks.cli import listings

        listed = [listings.SettingListed(name=n, variable=var, value=val, origin=o) for n, var, val, o in rows]
        print_json(
            listings.Config(
                project=str(settings.project),
                file=str(file) if file.exists() else None,
                environment=settings.values.environment,
                settings=listed,
            )
        )
        return
    chosen = f", environment {settings.values.environment}" if settings.values.environment else ""
    out.print(Text(f"Project {settings.project}{chosen}"))
    print_table("", ("setting", "value", "from"), ((key, value, origin or "default") for key, _, value, origin in rows))


def _setting_shown(value: str | config.Reference) -> str:
    return "***" if isinstance(value, config.Reference) else value


def shown(settings: Settings, key: str, variable: str) -> str | None:
    """The value of a setting, without secrets."""
    value: Any = getattr(settings, key)
    if value in (None, ()):
        return None
    if settings.values.is_reference(variable):
        return "***"
    text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return _PASSWORD.sub(r"\1:***", text)
