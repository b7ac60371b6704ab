"""What traces cost a driver per batch: `python -m tests.benchmarks.traces [--tasks 36] [--batches 200]`.

A receiver of OTLP runs in a process of its own. The figures are those of a batch with so many tasks, as a driver has
them. Off and on take turns, so that both meet the same machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deltaworks.settings import Settings
from deltaworks.traces.export import Exporter, traced
from deltaworks.traces.layout import batch_span
from deltaworks.traces.options import TraceOptions
from deltaworks.traces.tracer import NoTracer, Tracer
from tests.support.otlp import otlp_receiver
from tests.unit.traces.batches import SPARK, figures

_WARM = 5
"""Batches that do not count."""


def batch_us(tracer: Tracer, batch_id: int, tasks: int) -> float:
    """Microseconds of CPU that the driver's own thread spends on the trace of a batch, until it goes on."""
    batch = figures(batch_id, tasks=tasks, spark=False)
    begun = time.thread_time()
    tracer.ended(batch)
    if tracer.waits:
        tracer.spark_told(batch_id, SPARK)
    return (time.thread_time() - begun) * 1e6


def send_ms(exporter: Exporter, batch_id: int, tasks: int) -> float:
    """Milliseconds of CPU that a trace takes in the thread that sends it, beside the next batch."""
    batch = figures(batch_id, tasks=tasks)
    begun = time.thread_time()
    problem = exporter.send(batch)
    took = (time.thread_time() - begun) * 1e3
    assert problem is None, problem
    return took


def measured(endpoint: str, tasks: int, batches: int) -> dict[str, float]:
    """Medians of what a batch costs, with traces and without."""
    settings, options, off = Settings.from_environment({}), TraceOptions(endpoint=endpoint, timeout_s=60), NoTracer()
    took: dict[str, list[float]] = {"off": [], "on": []}
    with traced(settings, "bench", 1, options, close_s=60) as on:
        for batch_id in range(-_WARM, batches):
            for name, tracer in (("off", off), ("on", on)):
                each = batch_us(tracer, batch_id, tasks)
                time.sleep(0.02)  # it is sent
                if batch_id >= 0:
                    took[name].append(each)
    assert on.dropped == 0, f"{on.dropped} were dropped"
    exporter = Exporter(settings, "bench", 1, options)
    sent = [send_ms(exporter, batch_id, tasks) for batch_id in range(-_WARM, batches)][_WARM:]
    exporter.close()
    exporter.let_log()
    return {
        "tasks": tasks,
        "batches": batches,
        "spans": len([*batch_span(figures(tasks=tasks)).all()]),
        "off_us": round(statistics.median(took["off"]), 1),
        "on_us": round(statistics.median(took["on"]), 1),
        "send_ms": round(statistics.median(sent), 2),
    }


@contextmanager
def receiver() -> Iterator[str]:
    """The address of a receiver in another process."""
    command = [sys.executable, "-m", "tests.benchmarks.traces", "--receive"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(30)


def main() -> None:
    """Prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=36)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--receive", action="store_true", help="be the receiver")
    given = parser.parse_args()
    if given.receive:
        with otlp_receiver() as received:
            print(received.endpoint + "/v1/traces", flush=True)
            sys.stdin.read()
        return
    with receiver() as endpoint:
        print(json.dumps(measured(endpoint, given.tasks, given.batches)))


if __name__ == "__main__":
    main()
