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
from deltaworks.traces.export import traced
from deltaworks.traces.options import TraceOptions
from deltaworks.traces.tracer import NoTracer, Tracer
from tests.support.otlp import otlp_receiver
from tests.unit.traces.batches import SPARK, figures


def batch_us(tracer: Tracer, batch_id: int, tasks: int) -> float:
    """Microseconds of CPU that the driver's own thread spends on the trace of a batch, until it goes on."""
    batch = figures(batch_id, tasks=tasks, spark=False)
    begun = time.thread_time()
    tracer.ended(batch)
    if tracer.waits:
        tracer.spark_told(batch_id, SPARK)
    return (time.thread_time() - begun) * 1e6


def measured(endpoint: str, tasks: int, batches: int) -> dict[str, float]:
    """Medians of what a batch costs, with traces and without.

    `cpu_ms` is the CPU time of the process per batch with traces, less that without: most of it is the thread that
    sends, beside the next batch.
    """
    options, off = TraceOptions(endpoint=endpoint, timeout_s=60), NoTracer()
    took: dict[str, list[float]] = {"off": [], "on": []}
    cpu = {"off": 0.0, "on": 0.0}
    with traced(Settings.from_environment({}), "bench", 1, options, close_s=60) as on:
        for batch_id in range(-5, batches):
            for name, tracer in (("off", off), ("on", on)):
                before = time.process_time()
                each = batch_us(tracer, batch_id, tasks)
                time.sleep(0.02)  # it is sent
                if batch_id >= 0:
                    took[name].append(each)
                    cpu[name] += time.process_time() - before
    assert on.dropped == 0, f"{on.dropped} were dropped"
    return {
        "tasks": tasks,
        "batches": batches,
        "off_us": round(statistics.median(took["off"]), 1),
        "on_us": round(statistics.median(took["on"]), 1),
        "on_99_us": round(statistics.quantiles(took["on"], n=100)[98], 1),
        "cpu_ms": round((cpu["on"] - cpu["off"]) / batches * 1e3, 2),
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
