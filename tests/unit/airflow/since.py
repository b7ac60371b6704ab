"""In what the supported versions of Airflow differ."""

from __future__ import annotations

import importlib.metadata

from airflow.sdk import exceptions

AIRFLOW_3_3 = not importlib.metadata.version("apache-airflow-core").startswith("3.2.")
BY_HAND = ["manual", "operator_triggered"] if AIRFLOW_3_3 else ["manual"]
"""Types of the runs that a person or a task starts."""
WAITS: type[BaseException] = exceptions.TaskAwaitingInput if AIRFLOW_3_3 else exceptions.TaskDeferred
"""Raised by a task that asks a person."""
