"""Our transforms for Kafka Connect as a jar and as a plugin; the compiler is replaced."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack import connect_plugins, connect_transforms
from deltaworks.stack.java import Java
from tests.unit.stack.test_components import INFRA

SERVICE = "META-INF/services/org.apache.kafka.connect.transforms.Transformation"
CLASS = "deltaworks/connect/ChangeHeaders.class"
COMPILER = """\
#!/bin/sh
echo compiled >> "$0.log"
while [ "$1" != -d ]; do shift; done
mkdir -p "$2/deltaworks/connect" && echo class > "$2/deltaworks/connect/ChangeHeaders.class"
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    java = Java(home=tmp_path / "jdk", version=17)
    (java.home / "bin").mkdir(parents=True)
    monkeypatch.setattr(connect_transforms, "find_java", lambda *_: java)
    jars = [
        tmp_path / f"org.apache.kafka__{name}__4.3.1.jar" for name in ("connect-api", "kafka-clients", "connect-json")
    ]
    monkeypatch.setattr(connect_transforms, "ensure_jars", lambda *_: jars)
    return java


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = Settings.from_environment({"HOME": str(tmp_path)}, cwd=tmp_path)
    infra = tmp_path / "infra"
    shutil.copytree(INFRA / "connect", infra / "connect")
    shutil.copytree(INFRA / "jars", infra / "jars")
    shutil.copy(INFRA / "components.toml", infra)
    return replace(found, infra=infra, cache=tmp_path / "cache", connect_plugins=("deltaworks",))


def compiler(java: Java, text: str = COMPILER) -> Path:
    file = java.home / "bin" / "javac"
    file.write_text(text)
    file.chmod(0o755)
    return file


def runs(file: Path) -> int:
    log = file.with_name("javac.log")
    return len(log.read_text().splitlines()) if log.is_file() else 0


def test_the_jar_has_the_classes_and_says_which_are_transforms(settings: Settings, java: Java) -> None:
    file = compiler(java)

    jar = connect_transforms.ensure(settings, print)
    again = connect_transforms.ensure(settings, print)

    assert (again, runs(file)) == (jar, 1)
    with zipfile.ZipFile(jar) as found:
        assert sorted(found.namelist()) == [SERVICE, CLASS]
        assert found.read(SERVICE) == b"deltaworks.connect.ChangeHeaders\n"
    assert [path.name for path in (settings.cache / "connect-transforms").iterdir() if path.name != ".lock"] == [
        jar.parent.name
    ]


def test_other_sources_are_another_jar(settings: Settings, java: Java) -> None:
    file = compiler(java)
    jar = connect_transforms.ensure(settings, print)
    source = settings.infra / "connect" / "transforms" / "deltaworks" / "connect" / "ChangeHeaders.java"
    source.write_text(source.read_text() + "\n")

    connect_plugins.ensure(settings, print)
    assert connect_transforms.ensure(settings, print) != jar
    assert runs(file) == 2


def test_the_plugin_comes_and_goes_with_the_choice(settings: Settings, java: Java) -> None:
    file = compiler(java)
    place = connect_plugins.folder(settings) / "deltaworks"

    for _ in range(2):
        connect_plugins.ensure(settings, print)
    assert [each.name for each in place.glob("*.jar")] == [connect_transforms.NAME]
    assert runs(file) == 1

    connect_plugins.ensure(replace(settings, connect_plugins=()), print)
    assert not place.exists()


def test_without_a_compiler_nothing_is_made_and_it_says_what_to_install(settings: Settings, java: Java) -> None:
    message = r"(?s)has no compiler: it is a JRE, not a JDK\..*openjdk-17-jdk-headless.*leave 'deltaworks' out of"
    with pytest.raises(ConfigurationError, match=message):
        connect_plugins.ensure(settings, print)

    assert not connect_plugins.folder(settings).exists()
    assert not (settings.cache / "connect-transforms").exists()


def test_sources_that_do_not_compile_leave_nothing_behind(settings: Settings, java: Java) -> None:
    compiler(java, "#!/bin/sh\necho 'ChangeHeaders.java:1: error' >&2\nexit 1\n")

    with pytest.raises(StackError, match="cannot be compiled") as told:
        connect_transforms.ensure(settings, print)

    assert "ChangeHeaders.java:1: error" in str(told.value.log)
    assert [each.name for each in (settings.cache / "connect-transforms").iterdir()] == [".lock"]
