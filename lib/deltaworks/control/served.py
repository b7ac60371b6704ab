"""What a driver tells those who read the stores of its stream from elsewhere: which batch is committed, and who has it.

Beside an object store, neither Spark's notes of committed batches nor the intents are on this machine, and on a
cluster the stores are not, either. So the driver writes a file into its home whenever a batch is committed. It is not
durable: after a loss of power it may be damaged, until the next batch is committed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import msgspec

from deltaworks import formats
from deltaworks.control.checkpoint import CheckpointPlan
from deltaworks.control.intents import Intent
from deltaworks.errors import IncompatibleCheckpointError, StoreUnavailableError
from deltaworks.files import replace_file
from deltaworks.kafka.ranges import Offsets, of_topics

FORMAT = 1
BATCHES = 64
"""Batches whose intents are told."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    format: int = FORMAT
    plan: CheckpointPlan
    """Of the checkpoint that runs."""
    local: str
    """The folder of its stores on this machine."""
    batch: int
    """Id of the last committed batch."""
    clock_ms: int
    """The time of that batch."""
    offsets: Offsets
    """Where it ended."""
    intents: tuple[tuple[int, str], ...]
    """Ids of the last committed batches, and the digests of their intents."""
    servers: dict[str, str]
    """Task, as `name_of` writes it -> the URL of the server beside its stores; empty: they are on this machine."""
    trouble: str = ""
    """Why a server beside the stores does not run."""
    token: str = ""
    """What requests to the servers are signed with."""


def name_of(stage: int, task: int) -> str:
    """The name of a task."""
    return f"{stage}-{task}"


def read(path: Path) -> Served | None:
    """The file of a stream; None: there is none.

    Raises:
        StoreUnavailableError: it is damaged.
        IncompatibleCheckpointError: another version of deltaworks wrote it.
    """
    return formats.read(
        path,
        Served,
        FORMAT,
        f"What the driver told readers of stores in {path}",
        other="deploy the stream with this version of deltaworks",
        damaged="the next batch of the stream writes it again",
        error=StoreUnavailableError,
    )


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where the stores of some tasks are, as their host says."""

    url: str
    """Of the server beside them; empty: none runs."""
    trouble: str = ""
    """Why."""


class Announcer:
    """Writes the file of a driver. For any number of threads.

    Args:
        path: of the file.
        plan: of the checkpoint that it runs.
        local: the folder of its stores on this machine.
        routes: of the tasks: those of a route are always in the same place.
        token: what requests to servers are signed with; None: tasks run on this machine.
    """

    def __init__(
        self,
        path: Path,
        plan: CheckpointPlan,
        local: Path,
        routes: Mapping[tuple[int, int], int],
        *,
        token: str | None,
    ) -> None:
        self._path, self._plan, self._local, self._token = path, plan, str(local), token
        self._tasks: dict[int, list[str]] = {}
        for task, route in routes.items():
            self._tasks.setdefault(route, []).append(name_of(*task))
        self._places: dict[int, Place] = {}
        self._waiting: tuple[Intent, Mapping[int, Place]] | None = None
        self._lock = threading.Lock()
        self._known: deque[tuple[int, str]] = deque(maxlen=BATCHES)
        found = _readable(path)
        if token is None and found is not None and found.local == self._local and found.plan == plan:
            self._known.extend(found.intents)
        else:  # of another checkpoint, or of servers that have ended with their driver
            path.unlink(missing_ok=True)

    @property
    def waits(self) -> bool:
        """Whether a batch has ended of which it is not known yet that it is committed."""
        return self._waiting is not None

    def ended(self, intent: Intent, places: Mapping[int, Place]) -> None:
        """A batch has ended.

        Args:
            intent: of the batch.
            places: by route.
        """
        with self._lock:
            self._waiting = intent, places

    def committed(self, batch: int) -> None:
        """Tells of a batch that Spark has committed, unless it was told of, or has not ended here."""
        with self._lock:
            if self._waiting is not None and self._waiting[0].batch == batch:
                (intent, places), self._waiting = self._waiting, None
                self._tell(intent, places)

    def _tell(self, intent: Intent, places: Mapping[int, Place]) -> None:
        self._places.update(places)
        while self._known and self._known[-1][0] >= intent.batch:
            self._known.pop()  # a checkpoint that was rewound runs batches again
        self._known.append((intent.batch, intent.digest))
        served = Served(
            plan=self._plan,
            local=self._local,
            batch=intent.batch,
            clock_ms=intent.clock_ms,
            offsets=of_topics(intent.end),
            intents=tuple(self._known),
            servers={task: place.url for route, place in self._places.items() for task in self._tasks[route]},
            trouble=next((place.trouble for place in self._places.values() if place.trouble), ""),
            token=self._token or "",
        )
        replace_file(self._path, msgspec.json.encode(served), mode=0o600)


def _readable(path: Path) -> Served | None:
    try:
        return read(path)
    except (StoreUnavailableError, IncompatibleCheckpointError):
        return None
