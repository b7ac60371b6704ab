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
    """A Java runtime that was asked for its version."""

    home: Path
    """What JAVA_HOME should be for programs that start Java themselves."""
    version: int
    """Its feature release, such as 17."""

    @property
    def executable(self) -> Path:
        """The launcher."""
        return self.home / "bin" / "java"


def find_java(settings: Settings, versions: Sequence[int]) -> Java:
    """The first usable Java of JAVA_HOME, PATH and the usual folders.

    Raises:
        ConfigurationError: none has one of the `versions`; says which were looked at.
    """
    rejected: list[str] = []
    for home in dict.fromkeys(_homes(settings)):
        version = _version(home / "bin" / "java")
        if version is not None and version in versions:
            return Java(home=home, version=version)
        rejected.append(f"  {home}: {'does not start' if version is None else f'version {version}'}")
    wanted = " or ".join(map(str, versions))
    seen = "\n".join(["Looked at:", *rejected]) if rejected else "There is none in JAVA_HOME, PATH or /usr/lib/jvm."
    raise ConfigurationError(
        f"Java {wanted} is needed to run Spark and Kafka. {seen}",
        hint=f"install one (Debian, Ubuntu: apt install openjdk-{versions[0]}-jre-headless) or point JAVA_HOME at it",
    )


def _homes(settings: Settings) -> Iterator[Path]:
    if settings.java_home is not None:
        yield settings.java_home
    for folder in settings.path:
        launcher = folder / "java"
        if os.access(launcher, os.X_OK):  # false, not an error, in a folder that others may not read
            yield launcher.resolve().parent.parent
    for parent in _FOLDERS:
        for folder in sorted(parent.glob("*")):
            for home in (folder, folder / "Contents" / "Home"):
                if os.access(home / "bin" / "java", os.X_OK):
                    yield home.resolve()


def _version(launcher: Path) -> int | None:
    """None when it is missing, does not start or says something else."""
    try:
        answer = subprocess.run(
            [launcher, "-XX:-UsePerfData", "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None
