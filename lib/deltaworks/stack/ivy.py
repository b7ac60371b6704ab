"""Downloads jars and other files of modules with the Ivy in the PySpark wheel, without Maven and without naming a
repository.

Ivy's folders are deleted afterwards. Its default chain is not used, because it also searches the user's local Maven
repository and breaks on entries without a jar.
"""

from __future__ import annotations

import importlib.util
import subprocess
import urllib.parse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack.components import Report
from deltaworks.stack.java import Java

_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="{poms}" checksums="{checksums}"/></resolvers>
</ivysettings>
"""
_OTHER = "other"
"""Our name for the type of a file that is not the jar of its module."""
_OF_MAVEN = "http://ant.apache.org/ivy/maven"
"""The XML namespace in which Ivy knows classifiers."""
_PROCESSES = 4
"""Number of parallel processes: Ivy loads one jar at a time, and more processes do not help on a small machine."""


@dataclass(frozen=True, order=True)
class Module:
    """Coordinates of one jar, or of another file of a module."""

    group: str
    artifact: str
    version: str
    extension: str = "jar"
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Module:
        """Parses `group:artifact:version`, and then `:extension` and `:classifier` if it is not the jar."""
        return cls(*text.split(":"))

    def __str__(self) -> str:
        named = f"{self.group}:{self.artifact}:{self.version}"
        if self.is_jar:
            return named
        return f"{named}:{self.extension}:{self.classifier}".rstrip(":")

    @property
    def is_jar(self) -> bool:
        """Whether it is the jar of its module, no other file."""
        return self.extension == "jar" and not self.classifier

    @property
    def file_name(self) -> str:
        """The file name, which includes the group because artifacts of different groups share names."""
        classifier = f"__{self.classifier}" if self.classifier else ""
        return f"{self.group}__{self.artifact}__{self.version}{classifier}.{self.extension}"


def download(
    java: Java, settings: Settings, modules: Sequence[Module], *, into: Path, transitive: bool, report: Report
) -> None:
    """Downloads every module, and with `transitive` its dependencies, to a folder, as `Module.file_name`.

    Raises:
        StackError: the repository cannot be reached or lacks a module; with the last lines of Ivy's log.
    """
    parts = [modules] if transitive else [modules[i::_PROCESSES] for i in range(min(_PROCESSES, len(modules)))]
    done: list[str] = []

    def loaded(name: str) -> None:
        done.append(name)
        total = "" if transitive else f" of {len(modules)}"
        report(f"jars: {len(done)}{total}, {name}")

    with ThreadPoolExecutor(len(parts)) as pool:
        runs = [
            pool.submit(_run, java, settings, part, into / f"ivy-{i}", into, transitive, loaded)
            for i, part in enumerate(parts)
        ]
        for run in runs:
            run.result()


def _run(
    java: Java, settings: Settings, modules: Sequence[Module], work: Path, into: Path, transitive: bool, loaded: Report
) -> None:
    work.mkdir(parents=True)
    config = work / "ivysettings.xml"
    config.write_text(
        _SETTINGS.format(poms=str(transitive).lower(), checksums="sha1" if transitive else "")
        if settings.ivy_settings is None
        else settings.ivy_settings.read_text()
    )
    wanted = work / "ivy.xml"
    wanted.write_text(_ivy_xml(modules, transitive))
    command = [
        str(java.executable),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        f"-Duser.home={work}",
        f"-Djava.io.tmpdir={work}",
        *_proxy_options(settings),
        *("-jar", str(_ivy_jar())),
        *("-settings", str(config), "-ivy", str(wanted), "-cache", str(work / "cache")),
        *("-confs", "default", "-types", "jar", "bundle", "maven-plugin", _OTHER),
        *("-retrieve", f"{into}/[organisation]__[artifact]__[revision](__[classifier]).[ext]"),
    ]
    log: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=work) as ivy:
        assert ivy.stdout is not None
        for line in ivy.stdout:
            if "[SUCCESSFUL ]" in line:
                loaded(line.split("!")[-1].split()[0])
            if line.strip(" .\t\r\n"):
                log.append(line.rstrip())
    if ivy.returncode != 0:
        wrong = [line.strip() for line in log if "not found:" in line or "FAILED" in line or "nreachable" in line]
        raise StackError(
            f"{len(modules)} jars could not be downloaded.",
            log=(wrong or log)[-15:],
            hint="the first start needs access to Maven Central. Behind a proxy, set HTTPS_PROXY=http://host:port; "
            "for your own repository, set DELTAWORKS_IVY_SETTINGS to an ivysettings.xml",
        )


def _ivy_xml(modules: Sequence[Module], transitive: bool) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(m.group)} name={quoteattr(m.artifact)} rev={quoteattr(m.version)}"
        f' conf="default" transitive="{str(transitive).lower()}">{_artifact_xml(m)}</dependency>'
        for m in modules
    )
    return (
        f'<ivy-module version="2.0" xmlns:m="{_OF_MAVEN}"><info organisation="deltaworks" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _artifact_xml(module: Module) -> str:
    """Which file of a module is meant, if it is not its jar."""
    if module.is_jar:
        return ""
    classifier = f" m:classifier={quoteattr(module.classifier)}" if module.classifier else ""
    name, extension = quoteattr(module.artifact), quoteattr(module.extension)
    return f'<artifact name={name} type="{_OTHER}" ext={extension}{classifier}/>'


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise ConfigurationError(
            "The installed pyspark has no jars/ivy-*.jar.", hint="install the full `pyspark`, not `pyspark-client`"
        )
    return found[-1]


def _proxy_options(settings: Settings) -> list[str]:
    """Java's options for the proxy, since Java does not read HTTPS_PROXY."""
    if settings.https_proxy is None:
        return []
    proxy = urllib.parse.urlsplit(settings.https_proxy)
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 3128}"]
