"""The command of an executor in a pod, as Spark's scheduler describes it in variables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.spark import pod

VARIABLES = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "4",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "orders-exec-7",
    "SPARK_USER": "me",
}


def test_the_command_has_what_spark_says_of_the_executor() -> None:
    found = pod.command(Path("/java"), Path("/jars"), VARIABLES)

    assert found == [
        *("/java", "-Xms1024m", "-Xmx1024m", "-cp", "/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://CoarseGrainedScheduler@127.0.0.1:1"),
        *("--executor-id", "7", "--cores", "4", "--app-id", "spark-1", "--hostname", "127.0.0.1"),
        *("--resourceProfileId", "0", "--podName", "orders-exec-7"),
    ]


def test_options_of_the_jvm_keep_their_order_and_their_spaces() -> None:
    options = {f"SPARK_JAVA_OPT_{index}": f"-Dopt={index} $HOME" for index in (10, 2, 0)}

    found = pod.command(Path("/java"), Path("/jars"), VARIABLES | options | {"SPARK_JAVA_OPT_X": "none"})

    assert found[1:4] == ["-Dopt=0 $HOME", "-Dopt=2 $HOME", "-Dopt=10 $HOME"]
    assert found[4] == "-Xms1024m"


def test_the_project_may_have_classes_of_its_own() -> None:
    more = {"SPARK_CLASSPATH": "/mine/*", "SPARK_CONF_DIR": "/opt/spark/conf"}

    found = pod.command(Path("/java"), Path("/jars"), VARIABLES | more)

    assert found[found.index("-cp") + 1] == "/opt/spark/conf:/mine/*:/jars/*"


def test_another_pod_is_no_executor() -> None:
    without = {name: value for name, value in VARIABLES.items() if name != "SPARK_DRIVER_URL"}

    with pytest.raises(ConfigurationError, match="no executor of Spark: it lacks SPARK_DRIVER_URL"):
        pod.command(Path("/java"), Path("/jars"), without)


def test_the_executor_takes_the_place_of_the_program(tmp_path: Path) -> None:
    java = tmp_path / "home/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text(
        '#!/bin/sh\ncase "$*" in *-version*) echo \'openjdk version "17.0.1"\' >&2; exit;; esac\n'
        'echo "$$" "$JAVA_HOME" "$SPARK_HOME" "$@"\n'
    )
    java.chmod(0o755)
    variables = {**os.environ, **VARIABLES, "JAVA_HOME": str(tmp_path / "home")}

    program = [sys.executable, "-m", "deltaworks.spark.pod", "executor"]
    with subprocess.Popen(program, env=variables, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=60)

    pid, home, spark, *words = said.split()
    assert (int(pid), home) == (process.pid, str(tmp_path / "home"))
    assert f"{spark}/jars/*" in words
    assert words[-2:] == ["--podName", "orders-exec-7"]


def test_it_is_not_started_by_hand() -> None:
    done = subprocess.run([sys.executable, "-m", "deltaworks.spark.pod"], capture_output=True, text=True, check=False)

    assert done.returncode == 1 and "usage: python -m deltaworks.spark.pod executor" in done.stderr
