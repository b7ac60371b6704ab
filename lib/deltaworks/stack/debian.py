"""Programs from Debian's packages, without root and without installing anything.

apt downloads them with folders of its own and checks their signatures, by the machine's configuration: sources, proxy,
keys. What it has downloaded is kept once per user (`Settings.cache`), with the SHA-256 of each package, which is
compared whenever it is used again. What they need and the system has is not downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.files import alone, replace_file
from deltaworks.settings import Settings
from deltaworks.stack.components import Report
from deltaworks.stack.jars import sha256_of

_SUMS = "SHA256SUMS"
_DOWNLOAD_S = 600
_LINES = 15
_LIBRARIES = ("usr/lib/*-linux-gnu*", "lib/*-linux-gnu*")
_PROGRAMS = ("apt-get", "dpkg")


def is_here(settings: Settings) -> bool:
    """Whether this machine has apt and dpkg."""
    return all(shutil.which(name, path=_path(settings)) for name in _PROGRAMS)


def ensure_packages(settings: Settings, name: str, packages: Sequence[str], report: Report) -> tuple[Path, ...]:
    """Packages and what they need, as files; several processes may call this at once.

    Args:
        settings: name the cache.
        name: of its folder there.
        packages: their names; what they need besides, apt finds out.
        report: gets a line before a download.

    Raises:
        ConfigurationError: there is no apt, or a package that was kept is not what apt has downloaded.
        StackError: they cannot be downloaded.
    """
    folder = settings.cache / "debian" / name
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / ".lock"):
        debs = folder / "debs"
        if not (debs / _SUMS).is_file():
            if not is_here(settings):
                raise ConfigurationError(f"There is no {' or '.join(_PROGRAMS)} to download {name} with.")
            report(f"{name}: downloading {', '.join(packages)} with apt")
            with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
                new = _download(settings, packages, Path(temporary))
                shutil.rmtree(debs, ignore_errors=True)
                new.rename(debs)
        return _checked(debs)


def unpack(settings: Settings, debs: Sequence[Path], root: Path) -> None:
    """Unpacks packages into a folder that stands for `/`, which is there when it is complete, and from these only.

    Raises:
        StackError: one cannot be unpacked.
    """
    stamp, wanted = root / ".complete", "\n".join(deb.name for deb in debs)
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(root, ignore_errors=True)
    new = root.with_name(f"{root.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o755)
    try:
        for deb in debs:
            _run(["dpkg", "-x", str(deb), str(new)], settings, "is the disk full?")
        new.chmod(0o755)  # the first package has set that of its `/`
        (new / stamp.name).write_text(wanted)
        new.rename(root)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def libraries(root: Path) -> str:
    """Where programs of an unpacked folder find their libraries, in the format of LD_LIBRARY_PATH."""
    return os.pathsep.join(str(folder) for pattern in _LIBRARIES for folder in sorted(root.glob(pattern)))


def _download(settings: Settings, packages: Sequence[str], folder: Path) -> Path:
    """A folder with the packages and their sums."""
    lists, cache = folder / "lists", folder / "cache"
    archives = cache / "archives"
    for each in (lists / "partial", archives / "partial"):
        each.mkdir(parents=True)
    options: Mapping[str, object] = {
        "Dir::State::lists": lists,
        "Dir::Cache": cache,
        "Dir::State::status": "/var/lib/dpkg/status",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": 1,
        "APT::Get::AllowUnauthenticated": 0,
    }
    apt = ["apt-get", "-q", "-y", *(text for key, value in options.items() for text in ("-o", f"{key}={value}"))]
    hint = "sources, proxy and keys are those of apt on this machine: does `apt-get update` work?"
    _run([*apt, "update"], settings, hint)
    install = [*apt, "--download-only", "--no-install-recommends", "--reinstall", "install"]
    _run([*install, *packages], settings, hint)
    debs = sorted(archives.glob("*.deb"))
    if not debs:
        raise StackError(f"apt has downloaded nothing for {', '.join(packages)}.", hint=hint)
    shutil.rmtree(archives / "partial")
    (archives / "lock").unlink(missing_ok=True)
    sums = "".join(f"{sha256_of(deb)}  {deb.name}\n" for deb in debs)
    replace_file(archives / _SUMS, sums.encode(), mode=0o600)
    return archives


def _checked(debs: Path) -> tuple[Path, ...]:
    sums = [line.split("  ") for line in (debs / _SUMS).read_text().splitlines()]
    for expected, name in sums:
        found = sha256_of(debs / name) if (debs / name).is_file() else "no file"
        if found != expected:
            raise ConfigurationError(
                f"{debs / name} is not what apt has downloaded: SHA-256 {found}, expected {expected}.",
                hint=f"somebody has changed it: do not use it before you know why. Without {debs}, it is downloaded "
                "again",
            )
    return tuple(debs / name for _, name in sums)


def _run(command: Sequence[str], settings: Settings, hint: str) -> None:
    env = {**settings.surroundings(), "LC_ALL": "C", "PATH": _path(settings), "DEBIAN_FRONTEND": "noninteractive"}
    try:
        answer = subprocess.run(command, capture_output=True, text=True, env=env, timeout=_DOWNLOAD_S, check=False)
    except subprocess.TimeoutExpired:
        raise StackError(f"{command[0]} has not ended after {_DOWNLOAD_S} s.", hint=hint) from None
    if answer.returncode != 0:
        raise StackError(
            f"{command[0]} ended with {answer.returncode}.",
            log=(answer.stdout + answer.stderr).splitlines()[-_LINES:],
            hint=hint,
        )


def _path(settings: Settings) -> str:
    return os.pathsep.join([*map(str, settings.path), "/usr/sbin", "/usr/bin", "/sbin", "/bin"])
