"""Rescales a pipeline of the Spark tests: `python -m tests.spark.rescale NAME`.

The last line of the output has what was done.
"""

from __future__ import annotations

import sys
from unittest import mock

import msgspec

from deltaworks import exits
from deltaworks.control import jobs
from deltaworks.errors import DeltaworksError
from deltaworks.rescale import rescaling
from deltaworks.settings import Settings
from tests.spark import pipelines


def main(name: str) -> None:
    with mock.patch.object(jobs, "load", lambda settings, wanted: getattr(pipelines, wanted)):
        done = rescaling.rescale(Settings.from_environment(), name, by="ada", report=print)
    print(msgspec.json.encode(done).decode())


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except DeltaworksError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(exits.code_of(error))
