"""Runs one pipeline of `pipelines.py` on the streaming host until it is told to stop: `python -m ... host NAME`."""

from __future__ import annotations

import sys

from deltaworks.settings import Settings
from deltaworks.spark.streaming import run
from tests.benchmarks import pipelines

if __name__ == "__main__":
    run(getattr(pipelines, sys.argv[1]), Settings.from_environment())
