"""What a session has whose tasks run on a cluster: settings, the archive of the code, a file with the secret."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from deltaworks.control.clusters.standalone import Standalone
from deltaworks.control.clusters.yarn import Yarn
from deltaworks.spark import cluster
from deltaworks.spark.cluster import CODE, PYTHON, Executors, tell_while_none

SUBMIT = "PYSPARK_SUBMIT_ARGS"
MASTER = "spark://m:7077"


def executors(
    code: Mapping[str, Path] | None = None, *, python: str = "python3", secret: str | None = None
) -> Executors:
    return Executors(Standalone(master=MASTER, python=python, secret=secret, cores=3), code or {})


def test_a_session_has_the_settings_of_its_cluster(tmp_path: Path) -> None:
    found = executors().config(tmp_path, "-Xss4m", {})

    assert found["spark.master"] == MASTER
    assert found["spark.cores.max"] == "3"
    assert found["spark.executor.extraJavaOptions"] == "-Xss4m"
    assert found["spark.executorEnv.PYTHONPATH"] == f"./{CODE}"
    assert found["spark.archives"] == f"{tmp_path}/{CODE}.tar.gz#{CODE}"
    assert f"./{CODE}/python" == PYTHON


@pytest.mark.parametrize(("secret", "wanted"), [(None, "false"), ("s3cret", "true")])
def test_whoever_knows_the_secret_may_connect_if_there_is_one(tmp_path: Path, secret: str | None, wanted: str) -> None:
    found = executors(secret=secret).config(tmp_path, "", {})

    assert found["spark.authenticate"] == wanted
    assert "s3cret" not in f"{found}"


def test_settings_of_the_project_win_but_for_what_makes_the_executors_ours(tmp_path: Path) -> None:
    own = {
        "spark.cores.max": "9",
        "spark.executor.extraJavaOptions": "-Dmine",
        "spark.locality.wait": "0s",
        "spark.executor.memory": "2g",
        "spark.master": "local[1]",
        "spark.executorEnv.PYTHONPATH": "/theirs",
        "spark.archives": "/environment.tar.gz#environment,/more.zip",
    }

    found = executors().config(tmp_path, "-Xss4m", own)

    ours = {"spark.master", "spark.executorEnv.PYTHONPATH", "spark.archives"}
    assert {name: value for name, value in found.items() if name in own.keys() - ours} == {
        name: value for name, value in own.items() if name not in ours
    }
    assert (found["spark.master"], found["spark.executorEnv.PYTHONPATH"]) == (MASTER, f"./{CODE}")
    assert found["spark.archives"].split(",") == [
        "/environment.tar.gz#environment",
        "/more.zip",
        f"{tmp_path}/{CODE}.tar.gz#{CODE}",
    ]


def on_yarn(folder: Path) -> Executors:
    return Executors(
        Yarn(
            master="yarn",
            python="python3",
            cores=3,
            folder=folder,
            managers=(("rm", 8032),),
            containers={"spark.executor.instances": "3"},
        ),
        {},
    )


def test_on_yarn_archives_come_through_yarn_and_from_nowhere_else(tmp_path: Path) -> None:
    own = {"spark.archives": "/a.tar.gz#a", "spark.yarn.dist.archives": "/b.zip", "spark.submit.deployMode": "cluster"}

    found = on_yarn(tmp_path).config(tmp_path, "", own)

    assert found["spark.yarn.dist.archives"] == f"/a.tar.gz#a,/b.zip,{tmp_path}/{CODE}.tar.gz#{CODE}"
    assert "spark.archives" not in found
    assert (found["spark.master"], found["spark.submit.deployMode"]) == ("yarn", "client")
    assert found["spark.executor.instances"] == "3"


@pytest.fixture
def code(tmp_path: Path) -> dict[str, Path]:
    """Files of a project, one of them a link, one with two names."""
    folder = tmp_path / "project"
    (folder / "jobs").mkdir(parents=True)
    (folder / "jobs/orders.py").write_text("ORDERS = 1\n")
    (folder / "shared.py").write_text("SHARED = 2\n")
    (folder / "jobs/shared.py").symlink_to("../shared.py")
    (folder / "jobs/again.py").hardlink_to(folder / "jobs/orders.py")
    return {f"jobs/{name}": folder / "jobs" / name for name in ("again.py", "orders.py", "shared.py")}


def unpacked(tmp_path: Path, executors: Executors) -> Path:
    """What an executor gets, as Spark unpacks it there."""
    scratch, folder = tmp_path / "scratch", tmp_path / "executor"
    scratch.mkdir()
    archive, _, name = executors.config(scratch, "", {})["spark.archives"].partition("#")
    (folder / name).mkdir(parents=True)
    subprocess.run(["tar", "-xzf", archive], cwd=folder / name, check=True)  # as Hadoop does
    return folder / name


def test_executors_get_the_code_of_the_project(tmp_path: Path, code: dict[str, Path]) -> None:
    found = unpacked(tmp_path, executors(code))

    files = {path.relative_to(found).as_posix() for path in found.rglob("*") if not path.is_dir()}
    assert files == {*code, "python"}
    assert (found / "jobs/orders.py").read_text() == (found / "jobs/again.py").read_text() == "ORDERS = 1\n"


def test_executors_get_the_content_of_a_link_since_they_cannot_follow_it(tmp_path: Path, code: dict[str, Path]) -> None:
    found = unpacked(tmp_path, executors(code))

    assert not (found / "jobs/shared.py").is_symlink()
    assert (found / "jobs/shared.py").read_text() == "SHARED = 2\n"


@pytest.mark.parametrize("name", ["python", "my python's $HOME"])
@pytest.mark.parametrize("relative", [True, False])
def test_the_program_of_the_archive_becomes_the_python_of_the_executors(
    tmp_path: Path, name: str, relative: bool
) -> None:
    working = tmp_path / "executor"
    (working / "environment").mkdir(parents=True)
    python = working / "environment" / name
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)

    unpacked(tmp_path, executors(python=f"./environment/{name}" if relative else str(python)))

    asked = [PYTHON, "-c", "import sys; print(sys.argv[1:])", "two words", "$HOME"]
    done = subprocess.run(asked, cwd=working, capture_output=True, text=True, check=True)
    assert done.stdout == "['two words', '$HOME']\n"


def of_properties(text: str) -> bytes:
    """A value of a file of properties, as Java reads it and has it: in UTF-16."""
    units, at = [], 0
    while at < len(text):
        assert text[at] not in " \t\f\r\n#!=:" and ord(text[at]) < 128
        if text[at] == "\\":
            assert text[at + 1] == "u"
            units.append(int(text[at + 2 : at + 6], 16))
            at += 6
        else:
            units.append(ord(text[at]))
            at += 1
    return b"".join(unit.to_bytes(2, "big") for unit in units)


@given(st.text(st.characters(codec=None, exclude_categories=())))
@example(" a=b:c#d!e\\u0041\n\r\t")
@example("\N{GRINNING FACE}")
@example("\N{ARABIC-INDIC DIGIT ONE}\N{LATIN SMALL LETTER E WITH ACUTE}")
def test_a_secret_is_read_as_it_was_written(secret: str) -> None:
    assert of_properties(cluster._escaped(secret)) == secret.encode("utf-16-be", "surrogatepass")


class Jvm:
    """What is seen when the JVM of a session starts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
        self.fails = False
        self.started: list[dict[str, Any]] = []
        self.gateways: list[object] = []
        self._file = scratch / "secrets.properties"
        monkeypatch.setattr(cluster, "launch_gateway", self._launch)
        monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda gateway: self.gateways.append(gateway))

    def _launch(self, conf: Any, popen_kwargs: dict[str, Any]) -> object:
        with suppress(FileNotFoundError):
            self.mode, self.text = self._file.stat().st_mode & 0o777, self._file.read_text()
        self.started.append({"conf": dict(conf.getAll()), "args": os.environ.get(SUBMIT), **popen_kwargs})
        self.hadoop = os.environ.get("HADOOP_CONF_DIR")
        if self.fails:
            raise RuntimeError("no Java")
        return self


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Jvm]:
    monkeypatch.delenv(SUBMIT, raising=False)
    made = Jvm(monkeypatch, tmp_path)
    yield made
    assert [path.name for path in tmp_path.iterdir()] == [], "files are left"


def test_the_jvm_works_in_the_folder_with_the_python_and_belongs_to_the_session(jvm: Jvm, tmp_path: Path) -> None:
    with executors().reached({"spark.x": "1"}, tmp_path):
        assert jvm.gateways == [jvm]

    (started,) = jvm.started
    assert (started["cwd"], started["conf"]["spark.x"]) == (str(tmp_path), "1")


def test_only_a_file_of_this_user_has_the_secret_and_only_while_the_jvm_starts(jvm: Jvm, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with executors(secret="s3cret =").reached({"spark.x": "1"}, tmp_path):
            pass
    finally:
        os.umask(before)

    (started,) = jvm.started
    assert (jvm.mode, jvm.text) == (0o600, "spark.authenticate.secret=s3cret\\u0020\\u003d\n")
    words = shlex.split(started["args"])
    assert words[words.index("--properties-file") + 1] == str(tmp_path / "secrets.properties")
    assert words[-1] == "pyspark-shell"
    assert "s3cret" not in f"{started}"


def test_without_a_secret_the_jvm_starts_as_always(jvm: Jvm, tmp_path: Path) -> None:
    with executors().reached({}, tmp_path):
        pass

    assert jvm.started[0]["args"] is None and not hasattr(jvm, "mode")


@pytest.mark.parametrize("before", [None, "/other"])
def test_only_the_jvm_of_a_session_on_yarn_has_its_configuration(
    jvm: Jvm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str | None
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    if before is not None:
        monkeypatch.setenv("HADOOP_CONF_DIR", before)

    with on_yarn(Path("/etc/hadoop")).reached({}, tmp_path):
        pass

    assert (jvm.hadoop, os.environ.get("HADOOP_CONF_DIR")) == ("/etc/hadoop", before)
    assert jvm.started[0]["args"] is None, "YARN hands the secret out"


@pytest.mark.parametrize("arguments", [None, "--name mine pyspark-shell"])
@pytest.mark.parametrize("secret", [None, "s3cret"])
@pytest.mark.parametrize("failure", ["none", "JVM", "session"])
def test_whatever_fails_the_secret_is_gone_and_later_sessions_start_as_before(
    jvm: Jvm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: str | None, secret: str | None, failure: str
) -> None:
    if arguments is not None:
        monkeypatch.setenv(SUBMIT, arguments)
    jvm.fails = failure == "JVM"

    with suppress(RuntimeError), executors(secret=secret).reached({}, tmp_path):
        if failure == "session":
            raise RuntimeError("no session")

    assert len(jvm.started) == 1
    assert os.environ.get(SUBMIT) == arguments
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_gives_no_executor_is_named_until_it_gives_one(caplog: pytest.LogCaptureFixture) -> None:
    counts = iter([0, 0, 0, 1])

    tell_while_none(lambda: next(counts), "standalone cluster of Spark at host:7077", every_s=0.01)

    assert len(caplog.messages) == 3
    assert caplog.messages[0].startswith("The standalone cluster of Spark at host:7077 has given no executor for 0 s")


def test_nothing_is_said_of_a_session_that_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    def count() -> int:
        raise Py4JNetworkError("gone")

    tell_while_none(count, "cluster", every_s=0.01)

    assert caplog.messages == []
