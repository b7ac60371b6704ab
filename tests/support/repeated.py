"""Work that goes on beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def repeated(opened: AbstractContextManager[Callable[[], object]], every_s: float) -> Iterator[None]:
    """A thread opens something, and calls it again and again until the block ends; its error is that of the block.

    Args:
        opened: in the thread; what it gives is called.
        every_s: the pause before each call, in seconds.
    """
    enough, failed = threading.Event(), list[Exception]()

    def repeat() -> None:
        try:
            with opened as work:
                while not enough.wait(every_s):
                    work()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()
        if failed:
            raise failed[0]
