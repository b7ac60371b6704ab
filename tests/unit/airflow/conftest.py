"""Airflow reads its settings when it is imported: here it gets a home of its own, no other test gets its settings."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings


def _import_airflow() -> None:
    home = tempfile.mkdtemp(prefix="deltaworks-airflow-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    mine = {
        "AIRFLOW_HOME": home,
        "AIRFLOW__CORE__UNIT_TEST_MODE": "True",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    before = {name: os.environ.get(name) for name in mine}
    os.environ.update(mine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import airflow.sdk
        import airflow.triggers.base  # noqa: F401
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


_import_airflow()
