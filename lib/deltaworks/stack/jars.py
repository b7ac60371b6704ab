"""The JVM artefacts: a committed lock file says which jars a set needs, with the SHA-256 of each.

Jars are kept once per user (`Settings.cache`) and linked into `<home>/jars/<set>`, so that a second clone is quick.
`make lock` writes the locks.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deltaworks.errors import ConfigurationError
from deltaworks.files import alone
from deltaworks.settings import Settings
from deltaworks.stack.components import Report, read_components
from deltaworks.stack.ivy import Module, download
from deltaworks.stack.java import find_java

OBJECT_STORE = "s3"
"""The set with which Hadoop reaches an object store."""


@dataclass(frozen=True)
class Jar:
    """One line of a lock: a jar, or another file of a module."""

    module: Module
    sha256: str
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.module} {self.sha256} {self.size_bytes}"


@dataclass(frozen=True)
class JarSet:
    """A lock: all jars of one classpath."""

    name: str
    jars: tuple[Jar, ...]

    @property
    def digest(self) -> str:
        """Changes with every change of the lock."""
        return hashlib.sha256("\n".join(map(str, self.jars)).encode()).hexdigest()


def lock_file(infra: Path, name: str) -> Path:
    """The path of the lock of a set."""
    return infra / "jars" / f"{name}.lock"


def read_lock(infra: Path, name: str) -> JarSet:
    """Reads the lock of a set; raises `ConfigurationError` if there is no such set."""
    file = lock_file(infra, name)
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in file.parent.glob("*.lock")))
        raise ConfigurationError(f"There is no set of jars named {name!r}.", hint=f"known sets: {known}")
    lines = [line.split() for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return JarSet(name, tuple(Jar(Module.parse(module), sha, int(size)) for module, sha, size in lines))


def ensure_jars(settings: Settings, name: str, report: Report = lambda _: None) -> tuple[Path, ...]:
    """The jars of a set, downloaded if necessary; several processes may call this at once.

    Raises:
        ConfigurationError: a jar does not match the lock, or no Java is usable.
        StackError: jars are missing and cannot be downloaded.
    """
    wanted = read_lock(settings.infra, name)
    folder = settings.jars / name
    paths = tuple(folder / jar.module.file_name for jar in wanted.jars)
    stamp = folder / ".complete"
    if stamp.is_file() and stamp.read_text() == wanted.digest and all(path.is_file() for path in paths):
        return paths
    with _complete_cache(settings, wanted.jars, report) as cache:
        _link(wanted.jars, cache, folder)
        stamp.write_text(wanted.digest)
    return paths


def ensure_cached(settings: Settings, wanted: Sequence[Jar], report: Report = lambda _: None) -> tuple[Path, ...]:
    """Some files of a set, in the cache, downloaded if necessary; raises like `ensure_jars`."""
    with _complete_cache(settings, wanted, report) as cache:
        return tuple(cache / jar.module.file_name for jar in wanted)


@contextmanager
def _complete_cache(settings: Settings, wanted: Sequence[Jar], report: Report) -> Iterator[Path]:
    """The cache, which nobody else changes meanwhile, with these files in it."""
    cache = settings.cache / "jars"
    cache.mkdir(parents=True, exist_ok=True)
    with alone(cache / ".lock"):
        missing = [jar for jar in wanted if not _is_intact(cache / jar.module.file_name, jar)]
        if missing:
            _fetch(settings, missing, cache, report)
        yield cache


def _fetch(settings: Settings, missing: Sequence[Jar], cache: Path, report: Report) -> None:
    java = find_java(settings, read_components(settings.infra).java_versions)
    size_mb = sum(jar.size_bytes for jar in missing) / 1e6
    report(f"jars: {len(missing)} to download, {size_mb:.0f} MB")
    with tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as temporary:
        folder = Path(temporary)
        try:
            download(java, settings, [j.module for j in missing], into=folder, transitive=False, report=report)
            for jar in missing:
                _check(folder / jar.module.file_name, jar)
        finally:  # the next try continues where this one ended
            for jar in missing:
                if _is_intact(folder / jar.module.file_name, jar):
                    (folder / jar.module.file_name).replace(cache / jar.module.file_name)


def _check(file: Path, jar: Jar) -> None:
    found = sha256_of(file) if file.is_file() else "no file"
    if found != jar.sha256:
        raise ConfigurationError(
            f"{jar.module} does not match the lock: SHA-256 {found}, expected {jar.sha256}.",
            hint="the download was altered in transit, or the repository serves another file. Do not use it; retry "
            "from another network. If the version was changed on purpose, run "
            "`python -m tooling.jar_locks <set>` in a clone and review the difference",
        )


def _is_intact(file: Path, jar: Jar) -> bool:
    return file.is_file() and file.stat().st_size == jar.size_bytes and sha256_of(file) == jar.sha256


def _link(jars: Sequence[Jar], cache: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for jar in jars:
        link(cache / jar.module.file_name, folder / jar.module.file_name)


def link(source: Path, target: Path) -> None:
    """Makes a hard link where the file system supports it, and a copy elsewhere."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
