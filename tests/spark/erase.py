"""Erases a key from the state of a pipeline for the Spark tests: `python -m tests.spark.erase NAME KEY ID`.

The last line of the output has the number of entries by store; `--count` as the ID only counts.
"""

from __future__ import annotations

import sys

import msgspec

from deltaworks import exits, faults
from deltaworks.control import fence
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.erase import state
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings
from deltaworks.topology.persons import Person
from tests.spark import pipelines


def main(name: str, key: str, erasure_id: str) -> None:
    settings, pipeline = Settings.from_environment(), getattr(pipelines, name)
    faults.install(settings.fault_hook)
    paths, person = PipelinePaths.of(settings, name), Person.of(key)
    generation = fence.read(paths.fence) + 1
    with Lease(paths.lease, name, generation):
        fence.advance(paths.fence, generation, name)
        if erasure_id == "--count":
            done = state.count(settings, pipeline, paths, person)
        else:
            done = state.erase(settings, pipeline, paths, person, erasure_id)
    print(msgspec.json.encode(done.entries).decode())


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except DeltaworksError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(exits.code_of(error))
