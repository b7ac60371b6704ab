from __future__ import annotations

from pathlib import Path

from deltaworks.control.logs import why


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


def test_what_an_earlier_generation_wrote_explains_nothing(tmp_path: Path) -> None:
    log = tmp_path / "orders.log"
    log.write_text("ValueError: of generation 1\n")
    size = log.stat().st_size
    with log.open("a") as end:
        end.write("hello of generation 2\n")

    assert why(log, after=size) == ["hello of generation 2"]
