"""Sample data that keeps flowing while something is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import takewhile

from deltaworks.control import jobs
from deltaworks.kafka import admin
from deltaworks.settings import Settings
from deltaworks.testing.sample_data import SampleData, produce, records_of

_ENDLESS = 1_000_000


@contextmanager
def flowing(
    settings: Settings,
    rate: float,
    *,
    job: str = "orders",
    records: int = _ENDLESS,
    seed: int = 7,
    continued: bool = False,
) -> Iterator[threading.Thread]:
    """The sample data of a job flows in the background at `rate` records per second until the block ends, or all is
    written. Yields the thread that writes it.

    Args:
        settings: of the stack.
        rate: records per second.
        job: whose.
        records: of its main topic.
        seed: of the data.
        continued: what is in the topics is not written again.
    """
    enough = threading.Event()
    data: SampleData = import_module(f"jobs.sample_data.{job}")
    sample = takewhile(lambda _: not enough.is_set(), records_of(data, records, seed, jobs.schemas_of(settings, job)))
    present: dict[tuple[str, int], int] = {}
    if continued:
        plan = jobs.load(settings, job).plan()
        present = admin.end_offsets(settings.cluster, (*plan.source_topics, *plan.global_topics))
    thread = threading.Thread(
        target=produce,
        args=(settings.cluster, sample),
        kwargs={"records_per_second": rate, "present": present},
        daemon=True,
    )
    thread.start()
    try:
        yield thread
    finally:
        enough.set()
        thread.join()
