"""Prometheus and its Alertmanager for a home: they watch the drivers that serve metrics, and tell of alerts.

The programs are those of the settings or of the system, else from Debian's packages (`debian.py`), unpacked in the
home. Both listen only on 127.0.0.1, have no password, and run as our user.

Debian's programs read pages and templates from `/usr/share/prometheus`, which only root could make. So in what is
unpacked, that path leads to their working directory instead.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deltaworks import home
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.files import replace_file
from deltaworks.metrics import prometheus, rules
from deltaworks.settings import Settings
from deltaworks.stack import debian, pages
from deltaworks.stack.components import Component, Report, Software

PROMETHEUS, ALERTMANAGER = "prometheus", "alertmanager"
_LOOPBACK = "127.0.0.1"
_PACKAGES = ("prometheus", "prometheus-alertmanager")
_NAMES = {"prometheus": ("prometheus",), "alertmanager": ("alertmanager", "prometheus-alertmanager")}
"""Program -> the names that it has in an archive of its project and in Debian."""
_VERSION = re.compile(r"version (\d+)\.(\d+)")
_OLDEST = {"prometheus": (2, 42), "alertmanager": (0, 22)}
"""The first that know `keep_firing_for`, and matchers."""
_SHARE = b"/usr/share/prometheus/"
_HERE = b"/proc/self/cwd".ljust(len(_SHARE), b"/")
_TIMEOUT_S = 5


@dataclass(frozen=True, kw_only=True)
class Program:
    """One that can be started."""

    file: Path
    folder: Path = Path("/")
    """Its working directory."""


def prepare(settings: Settings, component: Component, report: Report) -> None:
    """Finds or unpacks the program, and writes its configuration.

    Raises:
        ConfigurationError: no program is usable, a package is not what was downloaded, or Prometheus would take the
            path of the home for a pattern.
        StackError: packages cannot be downloaded.
    """
    home.make(settings)
    name = component.name
    config = prometheus.prometheus_config(settings, _rules(settings)) if name == PROMETHEUS else ""
    settings.monitoring.mkdir(mode=0o700, exist_ok=True)
    ensure_program(settings, name, report)
    _data(settings, name).mkdir(mode=0o700, exist_ok=True)
    if name == PROMETHEUS:
        replace_file(_rules(settings), rules.render(docs_url=settings.docs_url).encode(), mode=0o600)
    else:
        config = prometheus.alertmanager_config(settings)
    replace_file(_config(settings, name), config.encode(), mode=0o600)


def command(settings: Settings, component: Component, software: Software) -> list[str]:
    """The command that starts it.

    Raises:
        ConfigurationError: no program is usable.
    """
    name = component.name
    options = {
        "config.file": str(_config(settings, name)),
        "storage.tsdb.path" if name == PROMETHEUS else "storage.path": str(_data(settings, name)),
        "web.listen-address": f"{_LOOPBACK}:{port(settings, name)}",
        **software.settings,
    }
    program = find_program(settings, name)
    return [str(program.file), *(f"--{option}={value}" for option, value in options.items())]


def folder(settings: Settings, component: Component) -> Path:
    """Its working directory."""
    return find_program(settings, component.name).folder


def environment() -> dict[str, str]:
    """All variables of its process."""
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def answers(settings: Settings, name: str) -> bool:
    """Whether it says that it is ready."""
    return pages.shows(port(settings, name), "/-/ready", timeout_s=_TIMEOUT_S)


def port(settings: Settings, name: str) -> int:
    """Where it listens."""
    return settings.prometheus_port if name == PROMETHEUS else settings.alertmanager_port


def url(settings: Settings, name: str) -> str:
    """Where its pages are."""
    return f"http://{_LOOPBACK}:{port(settings, name)}"


def ensure_program(settings: Settings, name: str, report: Report) -> Program:
    """One that is there, else Debian's, which is then unpacked in the home.

    Args:
        settings: of the home.
        name: `prometheus` or `alertmanager`.
        report: gets a line before a download.

    Raises:
        ConfigurationError: none is usable, or a package is not what was downloaded.
        StackError: packages cannot be downloaded.
    """
    try:
        return find_program(settings, name)
    except ConfigurationError:
        if settings.prometheus_bin is not None or not debian.is_here(settings):
            raise
    root = _root(settings)
    root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    debian.unpack(settings, debian.ensure_packages(settings, "prometheus", _PACKAGES, report), root)
    for each in ("prometheus", "prometheus-alertmanager"):
        _lead_here(root / "usr" / "bin" / each)
    return find_program(settings, name)


def find_program(settings: Settings, name: str) -> Program:
    """The first usable one: DELTAWORKS_PROMETHEUS_BIN, PATH, what is unpacked in the home.

    Raises:
        ConfigurationError: none is usable; says which were tried, and what to do.
    """
    rejected = []
    for place, folder in _candidates(settings):
        file = next((place / each for each in _NAMES[name] if os.access(place / each, os.X_OK)), None)
        if file is None:
            if place == settings.prometheus_bin:
                rejected.append(f"  {place}: it has no {' or '.join(_NAMES[name])}")
        elif (version := _version(file, folder)) is None:
            rejected.append(f"  {file}: it does not say its version")
        elif version < _OLDEST[name]:
            shown = (".".join(map(str, each)) for each in (version, _OLDEST[name]))
            rejected.append(f"  {file}: version {', older than '.join(shown)}")
        else:
            return Program(file=file, folder=folder)
        if settings.prometheus_bin is not None:  # explicitly requested, so no other will do
            break
    seen = "\n".join(["Tried:", *rejected]) if rejected else "None was found."
    raise ConfigurationError(
        f"{name.capitalize()} cannot be started. {seen}",
        hint="on Debian and Ubuntu, `up` downloads it with apt. Elsewhere install one, or set "
        "DELTAWORKS_PROMETHEUS_BIN=<folder with prometheus and alertmanager>; a Prometheus of your own needs no `up`, "
        "see `deltaworks metrics --scrape-config`",
    )


def _candidates(settings: Settings) -> Iterator[tuple[Path, Path]]:
    """Folders with programs, and their working directories."""
    if settings.prometheus_bin is not None:
        yield settings.prometheus_bin, Path("/")
    yield from ((place, Path("/")) for place in settings.path)
    root = _root(settings) / "usr"
    yield root / "bin", root / "share" / "prometheus"


def _version(file: Path, folder: Path) -> tuple[int, int] | None:
    try:
        answer = subprocess.run(
            [str(file), "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment(),
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answer.stdout)
    return (int(found[1]), int(found[2])) if found else None


def _lead_here(program: Path) -> None:
    """Makes an unpacked program look for its pages and templates in its working directory; once is enough."""
    content = program.read_bytes()
    if _HERE in content:
        return
    if _SHARE not in content:
        raise StackError(
            f"{program} does not look for its pages in {_SHARE.decode()}, as Debian's does.",
            hint="install Prometheus and Alertmanager, or set DELTAWORKS_PROMETHEUS_BIN=<folder with them>",
        )
    replace_file(program, content.replace(_SHARE, _HERE), mode=0o755)


def _config(settings: Settings, name: str) -> Path:
    return settings.monitoring / f"{name}.yml"


def _rules(settings: Settings) -> Path:
    return settings.monitoring / "alerts.yml"


def _data(settings: Settings, name: str) -> Path:
    return settings.monitoring / f"{name}-data"


def _root(settings: Settings) -> Path:
    """Debian's packages, unpacked."""
    return settings.monitoring / "programs"
