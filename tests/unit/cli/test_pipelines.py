from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.cli.pipelines import load, why
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

PROJECT = Path(__file__).parents[3]


def settings_of(project: Path) -> Settings:
    return Settings.from_environment({"DELTAWORKS_PROJECT": str(project)})


def test_a_pipeline_is_found_by_the_name_of_its_file() -> None:
    assert load(settings_of(PROJECT), "orders").name == "orders"


def test_a_file_without_pipeline_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="defines no pipeline"):
        load(settings_of(PROJECT), "orders_data")


def test_the_reason_is_the_python_error_among_sparks_lines(tmp_path: Path) -> None:
    log = tmp_path / "orders.log"
    log.write_text(
        "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown\n"
        "ValueError: location 'Berlin' is not COUNTRY/City\n"
        "\tat org.apache.spark.scheduler.Task.run(Task.scala:141)\n"
        "pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] Query terminated\n"
        "ValueError: location 'Berlin' is not COUNTRY/City\n"
    )

    assert why(log) == ["ValueError: location 'Berlin' is not COUNTRY/City"]


def test_without_a_python_error_the_last_lines_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "orders.log"
    log.write_text("".join(f"line {n}\n" for n in range(100)))

    assert why(log) == [f"line {n}" for n in range(85, 100)]
