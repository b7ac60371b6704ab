"""Compiles the Scala part of the SQL server: once per user and version, with the compiler of the PySpark wheel."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.files import alone
from deltaworks.settings import Settings
from deltaworks.stack.components import Report
from deltaworks.stack.java import Java

_HERE = Path(__file__).parent
_RESOURCES = ("functions.txt", "log4j2.properties")
"""What the classes read."""
_NEEDED = ("scala-compiler", "scala-library", "scala-reflect")
"""The jars of the compiler."""


def spark_jars() -> Path:
    """The folder of the jars of Spark.

    Raises:
        ConfigurationError: PySpark is not installed, or without its jars.
    """
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec is not None and spec.origin else None
    if folder is None or not all(any(folder.glob(f"{name}*.jar")) for name in (*_NEEDED, "spark-hive-thriftserver")):
        raise ConfigurationError(
            "The SQL server needs PySpark with its jars.",
            hint="pip install 'deltaworks[spark,stack]'; `pyspark-client` has no jars",
        )
    return folder


def compiled(settings: Settings, java: Java, delta: Sequence[Path], report: Report = lambda _: None) -> Path:
    """The folder with the classes of the server, compiled if necessary; several processes may call this at once.

    Args:
        settings: name the cache.
        java: runs the compiler.
        delta: the jars of Delta.
        report: gets a line if it takes a while.

    Raises:
        StackError: the compiler refuses the sources, which do not fit this PySpark.
    """
    jars, sources = spark_jars(), sorted(_HERE.glob("*.scala"))
    cache = settings.cache / "sql"
    folder = cache / _digest(sources, jars, delta)
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with alone(cache / ".lock"):
        if not folder.is_dir():
            report("sql: compiling")
            with tempfile.TemporaryDirectory(dir=cache, prefix=".compile-") as temporary:
                classes = Path(temporary) / "classes"
                classes.mkdir()
                _compile(java, sources, jars, delta, classes)
                for name in _RESOURCES:
                    shutil.copyfile(_HERE / name, classes / name)
                classes.rename(folder)
    return folder


def _digest(sources: Sequence[Path], jars: Path, delta: Sequence[Path]) -> str:
    """Changes with the sources, and with what they are compiled against."""
    found = hashlib.sha256()
    for file in (*sources, *(_HERE / name for name in _RESOURCES)):
        found.update(f"{file.name}\n".encode() + file.read_bytes())
    for jar in (*sorted(jars.glob("*.jar")), *delta):
        found.update(f"{jar.name} {jar.stat().st_size}\n".encode())
    return found.hexdigest()[:32]


def _compile(java: Java, sources: Sequence[Path], jars: Path, delta: Sequence[Path], classes: Path) -> None:
    compiler = [str(jar) for name in _NEEDED for jar in jars.glob(f"{name}*.jar")]
    library = ":".join(map(str, (*sorted(jars.glob("*.jar")), *delta)))
    command = [
        str(java.executable),
        *("-Xmx640m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
        *("-cp", ":".join(compiler), "scala.tools.nsc.Main", "-nowarn"),
        *("-d", str(classes), "-classpath", library, *map(str, sources)),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise StackError(
            "The SQL server cannot be compiled.",
            log=(answer.stdout + answer.stderr).splitlines()[-15:],
            hint="it is written for the PySpark in constraints.txt: pip install -c <(deltaworks constraints)",
        )
