"""The archive of the JVM's classes, on real JVMs, each of a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.settings import Settings
from deltaworks.spark import class_data

SESSION = """
import os, sys
from pathlib import Path
from deltaworks.spark import session

scratch, options = sys.argv[1:]
spark = session.build(
    "classes", cores=1, partitions=1, driver_memory="512m", scratch=Path(scratch),
    python_path=os.environ["PYTHONPATH"], options=options,
)
spark.range(3).collect()
spark.stop()
"""


def run(settings: Settings, *arguments: str) -> None:
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "DELTAWORKS_CACHE": str(settings.cache)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def mapped(settings: Settings, scratch: Path) -> tuple[int, int]:
    """Classes that a session has, and how many of them come from the archive."""
    log = scratch / "classes.log"
    run(settings, "-c", SESSION, str(scratch), f"{class_data.option(settings)} -Xlog:class+load:file={log}")
    lines = log.read_text().splitlines()
    return len(lines), sum("shared objects file (top)" in line for line in lines)


@pytest.mark.slow
def test_a_jvm_takes_most_classes_from_an_archive_that_is_made_once(tmp_path: Path) -> None:
    settings = replace(Settings.from_environment(), cache=tmp_path / "a cache")
    assert class_data.option(settings) == ""

    run(settings, "-m", "deltaworks.spark.class_data")

    (archive,) = (settings.cache / "classes").glob("*.jsa")
    assert [each.name for each in archive.parent.iterdir() if each.name != ".lock"] == [archive.name]
    assert not class_data.make(settings), "it is there"
    all_of_them, from_archive = mapped(settings, tmp_path)

    assert from_archive > all_of_them / 2
