"""Code archives, from which drivers run, so that editing files does not change a running stream.

`<home>/code/<digest>/` holds the package `deltaworks` and the `jobs/` of the project as of a deployment, under a name
that follows from the content. A generation runs, and is restarted, from its archive. A batch that it leaves open can be
finished with it, however the project has changed since. An archive does not contain the environment: the versions of
Python and of the distributions are only part of the digest and listed in the manifest.

`retention` decides which archives are removed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import math
import os
import platform
import py_compile
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from deltaworks import clock
from deltaworks.errors import ConfigurationError, IncompatibleCheckpointError
from deltaworks.files import lock, make_folder, replace_file, sync, sync_folder
from deltaworks.names import FILE
from deltaworks.settings import Settings

FORMAT = 1
_DIGITS = 24
_PUT_AGAIN_S = 1_800.0
"""An archive in an object store that is older than this is put there again when it is asked for, so that it counts as
new: `retention` removes old ones."""
_MANIFEST = "manifest.json"
_PACKAGE = "deltaworks"
_CHECKED = py_compile.PycInvalidationMode.CHECKED_HASH
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an archive and the versions that it was made with."""

    format: int = FORMAT
    python: str
    distributions: dict[str, str]
    """The distributions that deltaworks needs, with their versions."""
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
    """The folder of the archive, which comes first in PYTHONPATH: `Settings.with_code`."""


def archive(settings: Settings) -> Code:
    """The archive of the current code, made durably unless it exists; if this process runs from one, that one.

    Raises:
        IncompatibleCheckpointError: this process runs from an archive that was changed.
    """
    if settings.code is not None:
        return find(settings, settings.code.name)
    files = sources(settings)
    manifest = _manifest(files)
    code = Code(manifest.digest, settings.archives / manifest.digest)
    if not _intact(code):
        _write(code, manifest, files)
    _touch(code)
    _keep(settings, code, manifest)
    return code


def digest(settings: Settings) -> str:
    """The digest of the code that this process runs; writes nothing."""
    return settings.code.name if settings.code is not None else _manifest(sources(settings)).digest


def find(settings: Settings, digest: str) -> Code:
    """Finds an existing archive.

    Raises:
        IncompatibleCheckpointError: it is missing or was changed.
    """
    code = Code(digest, settings.archives / FILE.checked(digest, settings.archives))
    if not _intact(code) and not _fetch(settings, code):
        what = "was changed" if code.path.exists() else "is gone"
        raise IncompatibleCheckpointError(
            f"The archive of the code {code.path} {what}.",
            hint="restore it from a copy of the home; `deltaworks deploy` uses the current code instead",
        )
    _touch(code)
    return code


def _keep(settings: Settings, code: Code, manifest: Manifest) -> None:
    """Puts an archive where other machines find it, if streams go on there."""
    if (kept := stored(settings, code.digest)) is None:
        return
    with suppress(FileNotFoundError):
        if clock.wall_s() - kept.stat().st_mtime < _PUT_AGAIN_S:
            return
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name in (_MANIFEST, *manifest.files):
            file.write(code.path / name, name)
    replace_file(kept, packed.getvalue())


def _fetch(settings: Settings, code: Code) -> bool:
    """Gets an archive that another machine has made; returns whether it is here now."""
    if (kept := stored(settings, code.digest)) is None:
        return False
    try:
        packed = kept.read_bytes()
    except FileNotFoundError:
        return False
    make_folder(settings.archives)
    with tempfile.TemporaryDirectory(prefix=f".{code.digest}.", dir=settings.archives) as temporary:
        folder = Path(temporary)
        with suppress(zipfile.BadZipFile, zlib.error), zipfile.ZipFile(io.BytesIO(packed)) as file:
            file.extractall(folder)
        if not _intact(fetched := Code(code.digest, folder)):
            return False
        manifest = _stored(fetched)
        assert manifest is not None
        _write(code, manifest, {name: folder / name for name in manifest.files})
    return _intact(code)


def stored(settings: Settings, digest: str) -> Path | None:
    """Where an archive is in the object store; None: there is none."""
    return None if settings.storage is None else settings.storage.path / "code" / f"{digest}.zip"


def other_versions(code: Code) -> list[str]:
    """The distributions whose versions have changed since the archive was made, one line each."""
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
    """Restarts this process from an archive of the current code: executes the same command again in the same process.

    It returns only if the process already runs from an archive or should not.
    """
    if settings.code is not None or settings.run_from == "source":
        return
    _run_again(settings.with_code(archive(settings).path))


def _run_again(settings: Settings) -> None:
    environment = {**os.environ, **settings.driver_environment()}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def run_other_code(settings: Settings, place: str) -> None:
    """Likewise, but with the `jobs/` of another folder or of a git ref of the project; all other settings stay.

    Args:
        settings: name the project.
        place: a folder that has `jobs/`, or a branch, tag or commit.

    Raises:
        ConfigurationError: there is neither.
    """
    if settings.code is not None:
        return
    with _project_at(settings, place) as project:
        made = archive(replace(settings, project=project))
    _run_again(settings.with_code(made.path))


@contextmanager
def _project_at(settings: Settings, place: str) -> Iterator[Path]:
    folder = Path(place).absolute()
    if folder.is_dir():
        if not (folder / "jobs").is_dir():
            raise ConfigurationError(f"--code names the folder {folder}, which has no jobs/.", hint="name a project")
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="deltaworks-code-") as temporary:
        packed = Path(temporary) / "jobs.zip"
        command = [
            "git",
            "-C",
            str(settings.project),
            "archive",
            f"--output={packed}",
            "--end-of-options",
            place,
            "jobs",
        ]
        try:
            told = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise ConfigurationError(
                f"--code names {place!r}, which is no folder, and there is no git.",
                hint="name a folder, or install git",
            ) from None
        if told.returncode != 0:
            raise ConfigurationError(
                f"--code names {place!r}, which is neither a folder nor a commit with jobs/ in the repository of "
                f"{settings.project}: {told.stderr.strip()}",
                hint="a branch, a tag or a commit that was fetched; in GitHub Actions: `fetch-depth: 0`",
            )
        with zipfile.ZipFile(packed) as files:
            files.extractall(temporary)
        yield Path(temporary)


@contextmanager
def held(settings: Settings) -> Iterator[None]:
    """Protects the archive of this process from removal."""
    if settings.code is None:
        yield
        return
    with (settings.code / _MANIFEST).open("rb") as file:
        lock(file, shared=True, patience_s=math.inf)
        yield


def remove(code: Code) -> bool:
    """Removes an archive; returns False if a process runs from it."""
    with suppress(FileNotFoundError), (code.path / _MANIFEST).open("rb") as file:
        if not lock(file):
            return False
        _discard(code.path)
    _discard(code.path)
    return True


def files(settings: Settings) -> dict[str, Path]:
    """The code that this process runs, for an executor: path -> file."""
    if settings.code is None:
        return sources(settings)
    manifest = _stored(find(settings, settings.code.name))
    assert manifest is not None
    return {name: settings.code / name for name in manifest.files}


def sources(settings: Settings) -> dict[str, Path]:
    """The files to archive, in order: path within the archive -> file."""
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
    """The versions of what the package requires, extras included, as far as it is installed."""
    found: dict[str, str] = {}
    with suppress(importlib.metadata.PackageNotFoundError):
        matches = map(_REQUIREMENT.match, importlib.metadata.requires(_PACKAGE) or ())
        for name in sorted(
            {match.group() for match in matches if match is not None} - {_PACKAGE}
        ):  # extras repeat them
            with suppress(importlib.metadata.PackageNotFoundError):
                found[name] = importlib.metadata.version(name)
    return found


def _stored(code: Code) -> Manifest | None:
    """The manifest of an archive; None if it does not exist or is unreadable."""
    try:
        manifest = msgspec.json.decode((code.path / _MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None
    return manifest if manifest.format == FORMAT else None


def _intact(code: Code) -> bool:
    """Whether the archive holds exactly the files that its name stands for."""
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
    """Writes an archive, under another name first. If two processes do so at once, the second uses the first's."""
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
    """Compiles the sources, because processes that run from an archive write nothing into it
    (`Settings.driver_environment`).

    They would not sync the files, and a file truncated by a loss of power would break every later start. Python
    compares compiled files with the content of the source, not its time, because a copied home has other times.
    """
    for source in folder.rglob("*.py"):
        compiled = py_compile.compile(str(source), quiet=2, invalidation_mode=_CHECKED)
        if compiled is not None:  # a file that is not Python fails when it is imported
            yield Path(compiled)


def _copy(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())
    target.chmod(0o444)  # read-only: changes belong in the project
    return target


def _discard(folder: Path) -> None:
    """Removes a folder atomically for readers; the rest of an interrupted attempt has a name with a leading dot."""
    gone = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def asked_for_s(code: Code) -> float:
    """When an archive was last requested, in Unix seconds.

    Raises:
        FileNotFoundError: it has no manifest.
    """
    return (code.path / _MANIFEST).stat().st_mtime


def _touch(code: Code) -> None:
    """Notes that an archive was requested; see `retention`."""
    now_ns = clock.wall_ns()
    os.utime(code.path / _MANIFEST, ns=(now_ns, now_ns))
