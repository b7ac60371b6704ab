"""The broker of the tests: natively, or as a container where a Docker engine answers.

The option `--deltaworks-kafka` of pytest, or `deltaworks_kafka` in its configuration, says which.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from deltaworks.errors import ConfigurationError
from deltaworks.pytest_plugin import KINDS

if TYPE_CHECKING:
    from deltaworks.settings import Settings


@contextmanager
def running(kind: str, home: Path) -> Iterator[Settings]:
    """A broker until the block ends, or until pytest ends, even if it is killed.

    Args:
        kind: one of `KINDS`.
        home: a folder of its own.

    Raises:
        ConfigurationError: nothing of that kind is possible here; says what is missing for each.
        StackError: the broker does not start.
    """
    from deltaworks.settings import Settings

    settings = replace(Settings.from_environment(), home=home)
    match _chosen(kind, settings):
        case "native":
            with _native(home) as found:
                yield found
        case _:
            from deltaworks.pytest_plugin.container import broker

            with broker(settings) as bootstrap:
                yield replace(settings, bootstrap=bootstrap)


@contextmanager
def _native(home: Path) -> Iterator[Settings]:
    from deltaworks.pytest_plugin.live import own_settings
    from deltaworks.stack.lifecycle import down, up

    settings = own_settings(home)
    up(settings, only=["kafka"], tethered=True)
    try:
        yield settings
    finally:
        down(settings)


def _chosen(kind: str, settings: Settings) -> str:
    lacks = {}
    for each in KINDS[1:] if kind == "auto" else (kind,):
        lack = _lack_of_native(settings) if each == "native" else _lack_of_container()
        if lack is None:
            return each
        lacks[each] = lack
    told = "".join(f"\n  {each}: {lack}" for each, lack in lacks.items())
    raise ConfigurationError(
        f"There is no Kafka for these tests.{told}",
        hint="either pip install 'deltaworks[stack]' and Java, or pip install 'deltaworks[containers]' and Docker",
    )


def _lack_of_native(settings: Settings) -> str | None:
    """What a broker on this machine lacks; None: nothing."""
    try:
        from deltaworks.stack import lifecycle  # noqa: F401
        from deltaworks.stack.components import read_components
        from deltaworks.stack.java import find_java
    except ModuleNotFoundError as error:
        return _not_installed(error)
    try:
        find_java(settings, read_components(settings.infra).java_versions)
    except ConfigurationError as error:
        return error.message
    return None


def _lack_of_container() -> str | None:
    """What a broker in a container lacks; None: nothing."""
    try:
        from deltaworks.pytest_plugin.container import engine_error
    except ModuleNotFoundError as error:
        return _not_installed(error)
    return engine_error()


def _not_installed(error: ModuleNotFoundError) -> str:
    return f"'{(error.name or '').partition('.')[0]}' is not installed"
