"""A pipeline as bytes, for another process of this machine."""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle

from deltaworks.dsl.pipeline import Pipeline


def dumped(pipeline: Pipeline) -> bytes:
    """The pipeline; what its module defines is inside, so the other process need not be able to import a test."""
    pickling: Any = cloudpickle
    module = sys.modules.get(pipeline.topology.__module__)
    if module is None or module.__name__.startswith("jobs."):
        return bytes(pickling.dumps(pipeline))
    pickling.register_pickle_by_value(module)
    try:
        return bytes(pickling.dumps(pipeline))
    finally:
        pickling.unregister_pickle_by_value(module)
