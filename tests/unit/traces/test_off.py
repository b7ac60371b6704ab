"""Traces that nobody wants cost no import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import sys
from deltaworks import Pipeline
from deltaworks.settings import Settings
from deltaworks.traces.tracer import tracing
IMPORTS

with tracing(Settings.from_environment(), Pipeline(name="orders", topology=lambda _: None), 1) as tracer:
    print(type(tracer).__name__, sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize("is_on", [False, True])
def test_a_driver_imports_opentelemetry_only_if_its_settings_want_traces(tmp_path: Path, is_on: bool) -> None:
    if is_on:
        (tmp_path / "deltaworks.toml").write_text('[traces]\nendpoint = "http://127.0.0.1:4318"\n')
    env = {
        "PYTHONPATH": ":".join(each for each in sys.path if each),
        "DELTAWORKS_PROJECT": str(tmp_path),
        "DELTAWORKS_HOME": str(tmp_path / "home"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318",
    }
    run = RUN.replace("IMPORTS", "" if is_on else "import deltaworks.spark.streaming, deltaworks.traces.layout")
    done = subprocess.run([sys.executable, "-c", run], env=env, capture_output=True, text=True, check=True)
    tracer, _, modules = done.stdout.strip().partition(" ")

    assert tracer == ("SamplingTracer" if is_on else "NoTracer")
    assert ("'opentelemetry'" in modules) is is_on
    assert ("'requests'" in modules) is is_on
