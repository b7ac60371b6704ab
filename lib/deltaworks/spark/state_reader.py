"""Reads the state of a stream (`stored_state`) in a process of its own, for a driver that needs its JVM for a query.

`python -m deltaworks.spark.state_reader NAME FOLDER SCRATCH`; the holder of the lease runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deltaworks import exits
from deltaworks.control import children, outcome
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import DeltaworksError, QueryError
from deltaworks.settings import Settings
from deltaworks.spark import stored_state


@dataclass(frozen=True)
class StateReader:
    """As `stored_state.read`, of the checkpoint that runs.

    Args:
        is_told: whether we are to stop.
        begun: called with the id of the process.
    """

    is_told: Callable[[], bool]
    begun: Callable[[int], None]

    def __call__(self, settings: Settings, name: str, checkpoint: Path, folder: Path, scratch: Path) -> None:
        """
        Raises:
            QueryError: Spark cannot read it, or the process ended otherwise.
            ToldToStopError: we are to stop.
        """
        ended = children.run(
            [sys.executable, "-m", __name__, name, str(folder), str(scratch)],
            settings.driver_environment() | {"PYTHONPATH": settings.joined_python_path},
            is_told=self.is_told,
            begun=self.begun,
        )
        if self.is_told():
            raise children.ToldToStopError
        if ended != exits.OK:
            said = outcome.read(_word(folder))
            raise QueryError(
                f"The process that reads the state of {name!r} at {checkpoint} ended with {ended}: "
                f"{said.reason if said is not None and said.reason else 'it left no reason'}",
                hint="its output is in the log of the driver",
            )


def main(name: str, folder: Path, scratch: Path) -> int:
    """Reads it, or leaves word why not."""
    settings = Settings.from_environment()
    try:
        stored_state.read(settings, name, PipelinePaths.of(settings, name).current.spark, folder, scratch)
    except DeltaworksError as error:
        outcome.write(_word(folder), 0, exits.code_of(error), str(error))
        return exits.code_of(error)
    return exits.OK


def _word(folder: Path) -> Path:
    return folder.with_name("read.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(Path, sys.argv[2:])))
