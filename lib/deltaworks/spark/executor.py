"""What a Python process of an executor knows of its place."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDERS = "SPARK_LOCAL_DIRS"
"""The variable in which Spark tells its Python processes the folders of their executor."""


def of_executor() -> Path:
    """The folder of the executor that this process works for, which is removed when the executor ends: by Spark, even
    if it was killed by its worker or with its pod; on YARN, where Spark's folder lasts as long as the application, by
    the node manager, which removes that of the container."""
    if (container := os.environ.get("CONTAINER_ID")) is not None and (folders := os.environ.get("LOCAL_DIRS")):
        return Path(folders.split(",")[0]) / container / "deltaworks"
    return Path(os.environ[_FOLDERS].split(",")[0]) / "deltaworks"
