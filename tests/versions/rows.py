"""Which versions are tried, and with which tests."""

from __future__ import annotations

from dataclasses import dataclass

_AIRFLOW = "tests/integration/own_stack/test_airflow_stream.py"
_QUALITY = "tests/unit/quality"
_SPARK = ("tests/spark/test_streaming.py", "tests/spark/test_cases.py")
_AIRFLOW_3_2 = ("apache-airflow==3.2.*", "cadwyn<7", "fastapi<0.137", "pydantic<2.13", "svcs<26")
"""With what it was released: it fails with later versions of what it requires."""
_ALL = (
    "tests/unit",
    *("--ignore=tests/unit/jobs", "--ignore=tests/unit/tooling"),
    *("--ignore=tests/unit/stack/test_bootstrap.py", "--ignore=tests/unit/stack/test_kubernetes.py"),
    *("tests/conformance/test_conformance.py", "tests/conformance/test_micro_batches.py"),
    *("tests/system/data_defects", _AIRFLOW, *_SPARK),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One set of versions."""

    tests: tuple[str, ...]
    """Arguments of pytest."""
    extras: tuple[str, ...] = ("all",)
    lowest: bool = False
    """Whether each dependency of ours has the lowest version of its range; else the highest."""
    constraints: tuple[str, ...] = ()
    """What some packages have instead."""
    also: tuple[str, ...] = ()
    """Packages that are none of our dependencies."""


ROWS = {
    "lowest": Row(lowest=True, constraints=_AIRFLOW_3_2, tests=_ALL),
    "newest": Row(tests=_ALL),
    "airflow-3.2": Row(
        constraints=(*_AIRFLOW_3_2, "sqlalchemy<2.1"),
        tests=("tests/unit/airflow", "tests/unit/control", "tests/integration/control/test_registry.py", _AIRFLOW),
    ),
    "providers": Row(
        extras=("airflow", "quality", "spark", "stack"),
        also=("apache-airflow-providers-fab>=3.10,<4", "apache-airflow-providers-openlineage>=2.20,<3"),
        tests=("tests/unit/airflow/test_openlineage.py", "tests/unit/airflow/test_roles.py"),
    ),
    "pandas-3.0": Row(
        extras=("quality", "stack"), constraints=("pandas==3.0.*", "great-expectations==1.23.*"), tests=(_QUALITY,)
    ),
    "pandas-3.1": Row(extras=("quality", "stack"), constraints=("pandas==3.1.*",), tests=(_QUALITY,)),
    # Without delta-spark, which only `all` has: it requires PySpark 4.2.0.
    "pyspark-4.2.1": Row(
        extras=("airflow", "quality", "spark", "stack"),
        constraints=("pyspark==4.2.1",),
        tests=("tests/unit/spark", *_SPARK),
    ),
}
