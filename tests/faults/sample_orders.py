"""Sample orders that keep flowing while something is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile

from deltaworks.settings import Settings
from jobs.sample_data import orders
from jobs.sample_data.kafka import produce

_ENDLESS = 1_000_000


@contextmanager
def flowing(settings: Settings, rate: float, *, records: int = _ENDLESS, seed: int = 7) -> Iterator[threading.Thread]:
    """Sample orders flow in the background at `rate` records per second until the block ends, or all are written.

    Yields the thread that writes them.
    """
    enough = threading.Event()
    sample = takewhile(lambda _: not enough.is_set(), orders.records(records, seed))
    thread = threading.Thread(
        target=produce,
        args=(settings.bootstrap, sample),
        kwargs={"records_per_second": rate},
        daemon=True,
    )
    thread.start()
    try:
        yield thread
    finally:
        enough.set()
        thread.join()
