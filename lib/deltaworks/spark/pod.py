"""The program of a pod that is an executor of Spark: `python -m deltaworks.spark.pod executor`.

Spark's own images have a script for it, which PySpark's wheel lacks. With this one, executors run in the same image as
the supervisor: it has Java, and Spark in the wheel. Spark's scheduler says in variables what the executor is to be.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.stack.components import read_components
from deltaworks.stack.java import find_java

_CLASS = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_MEMORY = "SPARK_EXECUTOR_MEMORY"
_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")


def command(java: Path, jars: Path, variables: Mapping[str, str]) -> list[str]:
    """The command of an executor.

    Args:
        java: the launcher.
        jars: the folder with those of Spark.
        variables: of the pod.

    Raises:
        ConfigurationError: Spark did not make the pod.
    """
    if missing := sorted({_MEMORY, *_ARGUMENTS.values()} - variables.keys()):
        raise ConfigurationError(
            f"This pod is no executor of Spark: it lacks {', '.join(missing)}.", hint="a driver makes the pods it needs"
        )
    options = sorted((int(match[1]), name) for name in variables if (match := _OPTION.fullmatch(name)))
    memory = variables[_MEMORY]
    places = [variables.get("SPARK_CONF_DIR"), variables.get("SPARK_CLASSPATH"), f"{jars}/*"]
    return [
        str(java),
        *(variables[name] for _, name in options),
        *(f"-Xms{memory}", f"-Xmx{memory}"),
        *("-cp", os.pathsep.join(filter(None, places)), _CLASS),
        *(word for option, name in _ARGUMENTS.items() for word in (option, variables[name])),
    ]


def main() -> None:
    """Becomes the executor."""
    settings = Settings.from_environment()
    java = find_java(settings, read_components(settings.infra).java_versions)
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None and spark.origin is not None
    home = Path(spark.origin).parent
    words = command(java.executable, home / "jars", os.environ)
    os.execve(words[0], words, {**os.environ, "SPARK_HOME": str(home), "JAVA_HOME": str(java.home)})


if __name__ == "__main__":
    if sys.argv[1:] != ["executor"]:
        sys.exit("usage: python -m deltaworks.spark.pod executor; a driver makes the pods it needs")
    main()
