"""The Python daemon of the executors: imports everything once, then forks workers from itself.

A worker then starts in milliseconds rather than seconds, also after a kill, and shares the memory of the imports.
"""

import pandas  # noqa: F401  # PySpark loads it in every worker
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import deltaworks.spark.replay.executors
import deltaworks.spark.task_host  # noqa: F401

if __name__ == "__main__":
    manager()
