"""The transforms of deltaworks for Kafka Connect: compiled once per user and version, as a jar, with the JDK here.

Their sources are in `infra/connect/transforms`. The jar runs in any worker whose Java is not older than `_RELEASE`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.files import alone
from deltaworks.settings import Settings
from deltaworks.stack.components import Report, read_components
from deltaworks.stack.jars import ensure_jars
from deltaworks.stack.java import Java, find_java

NAME = "deltaworks-transforms.jar"
_SET = "connect"
_NEEDED = ("connect-api", "kafka-clients")
"""Of that set; the sources use no more."""
_RELEASE = 17
_SERVICES = "META-INF/services"
_ZIP_BEGINS = (1980, 1, 1, 0, 0, 0)


def digest(settings: Settings) -> str:
    """Changes with the sources, and with what they are compiled against."""
    found = hashlib.sha256(f"{_RELEASE}\n".encode())
    for file in (*_sources(settings), *_services(settings)):
        found.update(f"{file.name}\n".encode() + file.read_bytes())
    found.update((settings.infra / "jars" / f"{_SET}.lock").read_bytes())
    return found.hexdigest()[:32]


def ensure(settings: Settings, report: Report) -> Path:
    """The jar, in the cache, compiled if necessary; several processes may call this at once.

    Args:
        settings: name the cache.
        report: gets a line if it takes a while.

    Raises:
        ConfigurationError: no Java is usable, or it has no compiler.
        StackError: the compiler refuses the sources, or jars are missing and cannot be downloaded.
    """
    cache = settings.cache / "connect-transforms"
    jar = cache / digest(settings) / NAME
    if jar.is_file():
        return jar
    java = find_java(settings, read_components(settings.infra).java_versions)
    _require_compiler(java)
    library = [path for path in ensure_jars(settings, _SET, report) if any(f"__{n}__" in path.name for n in _NEEDED)]
    cache.mkdir(parents=True, exist_ok=True)
    with alone(cache / ".lock"):
        if not jar.is_file():
            report("connect: compiling transforms")
            with tempfile.TemporaryDirectory(dir=cache, prefix=".compile-") as temporary:
                folder = Path(temporary) / "made"
                folder.mkdir()
                classes = Path(temporary) / "classes"
                _compile(java, _sources(settings), library, classes)
                _pack(classes, _services(settings), folder / NAME)
                folder.rename(jar.parent)
    return jar


def _sources(settings: Settings) -> list[Path]:
    return sorted((settings.infra / "connect" / "transforms").rglob("*.java"))


def _services(settings: Settings) -> list[Path]:
    return sorted((settings.infra / "connect" / "transforms" / _SERVICES).iterdir())


def _compiler(java: Java) -> Path:
    return java.home / "bin" / "javac"


def _require_compiler(java: Java) -> None:
    if not os.access(_compiler(java), os.X_OK):
        raise ConfigurationError(
            f"The plugin 'deltaworks' of Kafka Connect is compiled here, and {java.home} has no compiler: it is a JRE, "
            "not a JDK.",
            hint=f"install one (Debian, Ubuntu: apt install openjdk-{java.version}-jdk-headless), point JAVA_HOME at "
            "it, or leave 'deltaworks' out of DELTAWORKS_CONNECT_PLUGINS",
        )


def _compile(java: Java, sources: Sequence[Path], library: Sequence[Path], classes: Path) -> None:
    command = [
        str(_compiler(java)),
        *("-J-Xmx256m", "-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1", "-J-XX:-UsePerfData"),
        *("-proc:none", "-Xlint:all", "-encoding", "UTF-8", "--release", str(_RELEASE)),
        *("-d", str(classes), "-cp", os.pathsep.join(map(str, library)), *map(str, sources)),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise StackError(
            "The transforms of deltaworks for Kafka Connect cannot be compiled.",
            log=(answer.stdout + answer.stderr).splitlines()[-15:],
            hint="their sources are in infra/connect/transforms, and fit the Kafka Connect of connect.lock",
        )


def _pack(classes: Path, services: Sequence[Path], jar: Path) -> None:
    """Makes a jar that is the same each time."""
    files = {file.relative_to(classes).as_posix(): file for file in classes.rglob("*.class")}
    files |= {f"{_SERVICES}/{file.name}": file for file in services}
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as out:
        for name, file in sorted(files.items()):
            out.writestr(zipfile.ZipInfo(name, _ZIP_BEGINS), file.read_bytes(), zipfile.ZIP_DEFLATED)
