"""Archives of the code: what a driver runs from, so that nobody changes a running stream by editing files.

`<home>/code/<digest>/` holds the package `deltaworks` and the `jobs/` of the project as they were when somebody
deployed, under a name that says what is in it. A generation runs, and is restarted, from its archive; the batch that it
leaves unfinished can be finished with it, whatever has become of the project since. What an archive does not hold is
the environment: the versions of Python and of the distributions are part of the digest and in the manifest only.

Which archives may go says `retention`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import py_compile
import re
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deltaworks import clock
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.files import lock, make_folder, sync, sync_folder
from deltaworks.names import FILE
from deltaworks.settings import Settings

FORMAT = 1
_DIGITS = 24
_MANIFEST = "manifest.json"
_PACKAGE = "deltaworks"
_CHECKED = py_compile.PycInvalidationMode.CHECKED_HASH
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive holds, and what it was made with."""

    format: int = FORMAT
    python: str
    distributions: dict[str, str]
    """Those that deltaworks needs, with their versions."""
    files: dict[str, str]
    """Path within the archive -> SHA-256 of the content."""

    @property
    def digest(self) -> str:
        """The name of the archive."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:_DIGITS]


@dataclass(frozen=True)
class Code:
    """An archive."""

    digest: str
    path: Path
    """Goes into PYTHONPATH, before everything else: `Settings.with_code`."""


def archive(settings: Settings) -> Code:
    """The archive of the code of now; made, durably, unless it is there. A process that runs from one gets that one.

    Raises:
        IncompatibleCheckpointError: this process runs from an archive that was changed.
    """
    if settings.code is not None:
        return find(settings, settings.code.name)
    sources = _sources(settings)
    manifest = _manifest(sources)
    code = Code(manifest.digest, settings.archives / manifest.digest)
    if not _intact(code):
        _write(code, manifest, sources)
    _touch(code)
    return code


def digest(settings: Settings) -> str:
    """That of the code that this process runs; nothing is written."""
    return settings.code.name if settings.code is not None else _manifest(_sources(settings)).digest


def find(settings: Settings, digest: str) -> Code:
    """An archive that was made before.

    Raises:
        IncompatibleCheckpointError: it is gone, or somebody changed it.
    """
    code = Code(digest, settings.archives / FILE.checked(digest, settings.archives))
    if not _intact(code):
        what = "was changed" if code.path.exists() else "is gone"
        raise IncompatibleCheckpointError(
            f"The archive of the code {code.path} {what}.",
            hint="bring it back from a copy of the home; `deltaworks deploy` takes the code of now instead",
        )
    _touch(code)
    return code


def other_versions(code: Code) -> list[str]:
    """What is installed in another version than when the archive was made, one line each."""
    then, now = _stored(code), _versions()
    assert then is not None
    names = sorted(then.distributions.keys() | now.keys())
    lines = [
        f"{name}: was {then.distributions.get(name, 'not installed')}, is {now.get(name, 'not installed')}"
        for name in names
        if then.distributions.get(name) != now.get(name)
    ]
    here = platform.python_version()
    return lines if then.python == here else [f"Python: was {then.python}, is {here}", *lines]


def run_from_archive(settings: Settings) -> None:
    """Lets this process go on from an archive of the code of now: the same command once more, in the same process.

    Returns only if it runs from an archive already, or shall not.
    """
    if settings.code is not None or settings.run_from == "source":
        return
    environment = {**os.environ, **settings.with_code(archive(settings).path).driver_environment()}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


@contextmanager
def held(settings: Settings) -> Iterator[None]:
    """While this process runs from its archive, nobody removes it."""
    if settings.code is None:
        yield
        return
    with (settings.code / _MANIFEST).open("rb") as file:
        lock(file, shared=True, wait=True)
        yield


def remove(code: Code) -> bool:
    """Removes an archive; False: a process runs from it."""
    with suppress(FileNotFoundError), (code.path / _MANIFEST).open("rb") as file:
        if not lock(file):
            return False
        _discard(code.path)
    _discard(code.path)
    return True


def _sources(settings: Settings) -> dict[str, Path]:
    """Path within the archive -> file, in order."""
    package = Path(__file__).resolve().parents[1]
    folders = {_PACKAGE: package, "jobs": settings.jobs}
    if not (package / "_infra").is_dir():
        folders[f"{_PACKAGE}/_infra"] = settings.infra
    return dict(sorted(item for name, folder in folders.items() for item in _files(folder, name)))


def _files(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name == "__pycache__":
                continue
            if entry.is_dir():
                yield from _files(Path(entry.path), f"{name}/{entry.name}")
            elif entry.is_file():
                yield f"{name}/{entry.name}", Path(entry.path)


def _manifest(sources: Mapping[str, Path]) -> Manifest:
    files = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sources.items()}
    return Manifest(python=platform.python_version(), distributions=_versions(), files=files)


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    with suppress(importlib.metadata.PackageNotFoundError):
        for requirement in importlib.metadata.requires(_PACKAGE) or ():
            match = _REQUIREMENT.match(requirement)
            if match is not None and "extra ==" not in requirement:
                with suppress(importlib.metadata.PackageNotFoundError):
                    found[match.group()] = importlib.metadata.version(match.group())
    return found


def _stored(code: Code) -> Manifest | None:
    """None: there is no archive, or it cannot be read."""
    try:
        manifest = msgspec.json.decode((code.path / _MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None
    return manifest if manifest.format == FORMAT else None


def _intact(code: Code) -> bool:
    """It holds what its name says, no file more and none less."""
    manifest = _stored(code)
    if manifest is None or manifest.digest != code.digest:
        return False
    found = {name: path for top in (_PACKAGE, "jobs") for name, path in _files(code.path / top, top)}
    if found.keys() != manifest.files.keys():
        return False
    try:
        return all(
            hashlib.sha256(path.read_bytes()).hexdigest() == manifest.files[name] for name, path in found.items()
        )
    except OSError:
        return False


def _write(code: Code, manifest: Manifest, sources: Mapping[str, Path]) -> None:
    """Under another name first. Whoever comes second at the same time takes what the first one made."""
    make_folder(code.path.parent)
    temporary = code.path.with_name(f".{code.digest}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        written = [_copy(path, temporary / name) for name, path in sources.items()]
        written += _compiled(temporary)
        written.append(temporary / _MANIFEST)
        written[-1].write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        sync(written)
        for folder, _, _ in os.walk(temporary):
            sync_folder(Path(folder))
        if code.path.exists() and not _intact(code):
            _discard(code.path)
        try:
            temporary.rename(code.path)
        except OSError:
            if not _intact(code):
                raise
        sync_folder(code.path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _compiled(folder: Path) -> Iterator[Path]:
    """What Python makes of the sources; processes that run from an archive write nothing into it
    (`Settings.driver_environment`).

    They would not sync it, and a file that a loss of power has cut off is an error for every later start. Python
    compares it with the content of the source, as a copy of a home has files of another time.
    """
    for source in folder.rglob("*.py"):
        compiled = py_compile.compile(str(source), quiet=2, invalidation_mode=_CHECKED)
        if compiled is not None:  # what is no Python says so when it is imported
            yield Path(compiled)


def _copy(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())
    target.chmod(0o444)  # who wants to change something changes the project
    return target


def _discard(folder: Path) -> None:
    """At once for everybody who looks; what is left of an attempt has a name that begins with a dot."""
    gone = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def asked_for_s(code: Code) -> float:
    """When somebody wanted to use it last, in Unix seconds.

    Raises:
        FileNotFoundError: it has no manifest.
    """
    return (code.path / _MANIFEST).stat().st_mtime


def _touch(code: Code) -> None:
    """Somebody is about to use it; see `retention`."""
    now_ns = clock.wall_ns()
    os.utime(code.path / _MANIFEST, ns=(now_ns, now_ns))
