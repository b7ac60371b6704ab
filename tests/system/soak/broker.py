"""The broker of the soak: its JVM gets the preloaded library, through a Java home with a launcher of our own."""

from __future__ import annotations

import shlex
from dataclasses import replace

import psutil

from deltaworks.settings import Settings
from deltaworks.stack.components import read_components
from deltaworks.stack.java import find_java
from deltaworks.stack.state import read_state
from tests.support.live_stack import await_restart
from tests.system.soak.faulty_disk import Disk


def with_faulty_disk(settings: Settings, disk: Disk) -> Settings:
    """Settings of a stack whose broker writes to the disk."""
    java = find_java(settings, read_components(settings.infra).java_versions)
    home = disk.work / "java"
    (home / "bin").mkdir(parents=True)
    launcher = home / "bin" / "java"
    exports = "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in disk.environment(journal=False).items()
    )
    launcher.write_text(f'#!/bin/sh\n{exports}exec {shlex.quote(str(java.executable))} "$@"\n')
    launcher.chmod(0o755)
    return replace(settings, java_home=home)


def process(settings: Settings) -> psutil.Process | None:
    """The broker's, while it runs."""
    state = read_state(settings.run)
    found = state.find("kafka") if state is not None else None
    if found is None or found.phase != "ready" or found.pid is None:
        return None
    try:
        return psutil.Process(found.pid)
    except psutil.NoSuchProcess:
        return None


def await_other(settings: Settings, killed: psutil.Process) -> None:
    """Until the runner has started it again."""
    await_restart(settings, "kafka", killed.pid, timeout_s=180)
