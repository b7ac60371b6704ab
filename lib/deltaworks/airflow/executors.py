"""Where Airflow's executors run tasks, and what follows for the supervisor of the streams.

A supervisor that a task starts lives on the machine, or in the container, of that task. With the LocalExecutor that
machine stays. With any other executor, the container may be gone a minute later, and tasks on other machines do not
reach its loopback address. There, a task uses a supervisor that runs elsewhere and starts none.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace

from airflow.sdk import conf

from deltaworks.config import KEYS
from deltaworks.settings import Settings

_HERE = "LocalExecutor"
_CONTAINERS = ("AIRFLOW_IS_K8S_EXECUTOR_POD", "AIRFLOW_IS_EXECUTOR_CONTAINER")
"""Executors set one of these in the containers of tasks, where the configuration may name the LocalExecutor."""
_CLASS = re.compile(r"(\w+)\s*(?:[,;]|$)")
"""The class of each executor in a list such as `LocalExecutor,pods:company.executors.PodExecutor`."""


def placed(settings: Settings) -> Settings:
    """The settings for a task: where it may run on any machine, the supervisor is elsewhere, unless they say `here`."""
    if settings.values.origin(KEYS["supervisor"]) is not None or not may_run_anywhere():
        return settings
    return replace(settings, supervisor="elsewhere")


def may_run_anywhere() -> bool:
    """Whether an executor of this Airflow runs tasks on other machines or in containers of their own."""
    if any(os.environ.get(name) for name in _CONTAINERS):
        return True
    return any(name != _HERE for name in _CLASS.findall(conf.get("core", "executor")))
