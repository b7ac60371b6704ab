"""Finds a Java that Spark and Kafka can run on."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_FOLDERS = (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines"))


@dataclass(frozen=True, kw_only=True)
class Java:
    """A Java runtime of a known version."""

    home: Path
    """The value of JAVA_HOME for programs that start Java themselves."""
    version: int
    """Its feature release, such as 17."""

    @property
    def executable(self) -> Path:
        """The launcher."""
        return self.home / "bin" / "java"


def find_java(settings: Settings, versions: Sequence[int]) -> Java:
    """The first usable Java in JAVA_HOME, PATH and the usual folders.

    Raises:
        ConfigurationError: none has one of the `versions`; says which were tried.
    """
    rejected: list[str] = []
    for home in dict.fromkeys(_homes(settings)):
        version = _version(home / "bin" / "java")
        if version is not None and version in versions:
            return Java(home=home, version=version)
        rejected.append(f"  {home}: {'does not start' if version is None else f'version {version}'}")
    wanted = " or ".join(map(str, versions))
    seen = "\n".join(["Tried:", *rejected]) if rejected else "None was found in JAVA_HOME, PATH or /usr/lib/jvm."
    raise ConfigurationError(
        f"Spark and Kafka need Java {wanted}. {seen}",
        hint=f"install one (Debian, Ubuntu: apt install openjdk-{versions[0]}-jre-headless) or point JAVA_HOME at it",
    )


def _homes(settings: Settings) -> Iterator[Path]:
    if settings.java_home is not None:
        yield settings.java_home
    for folder in settings.path:
        launcher = folder / "java"
        if os.access(launcher, os.X_OK):  # False, not an error, in an unreadable folder
            yield launcher.resolve().parent.parent
    for parent in _FOLDERS:
        for folder in sorted(parent.glob("*")):
            for home in (folder, folder / "Contents" / "Home"):
                if os.access(home / "bin" / "java", os.X_OK):
                    yield home.resolve()


def _version(launcher: Path) -> int | None:
    """The version of a launcher; None if it is missing, does not start or prints something else."""
    try:
        answer = subprocess.run(
            [launcher, "-XX:-UsePerfData", "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None
