"""What a Python process of an executor knows of its place."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDERS = "SPARK_LOCAL_DIRS"
"""The variable in which Spark tells its Python processes the folders of their executor."""


def of_executor() -> Path:
    """The folder of the executor that this process works for; Spark removes it when the executor ends."""
    return Path(os.environ[_FOLDERS].split(",")[0]) / "deltaworks"
