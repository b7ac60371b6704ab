"""Spark's folders in an object store: one for each start of a stream.

Another driver may still write to the store, however long ago it was replaced, and Spark makes its files by copies,
which nobody can forbid. So each start copies what Spark needs into a folder of its own, and nobody reads what appears
in the others from then on:

```
<checkpoint>/spark/000000000012-01/...     generation 12, its first start
<checkpoint>/spark-ready/000000000012-01   empty; exists when the folder is complete
```

The last complete one holds. A generation is admitted once (`fence`), so a driver that was replaced has a lower number,
and completes nothing that counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from deltaworks.files import remove_tree

_SPARK, _READY = "spark", "spark-ready"
_DIGITS = 12
_NAME = re.compile(rf"\d{{{_DIGITS}}}-\d{{2,}}")
_NONE = f"{0:0{_DIGITS}d}-00"
"""A folder that is never there."""
_KEPT = 2
"""So many complete folders stay, the last one included."""


def current(checkpoint: Path) -> Path:
    """Spark's folder; if there is none yet, one that does not exist."""
    return checkpoint / _SPARK / max(_complete(checkpoint), key=_order, default=_NONE)


def following(checkpoint: Path, generation: int) -> Path:
    """A folder that nobody has used, for the next start of a generation.

    Raises:
        ValueError: a higher generation has one already.
    """
    completed = [*map(_order, _complete(checkpoint))]
    if any(later > generation for later, _ in completed):
        raise ValueError(f"{checkpoint} has a folder of a later generation than {generation}")
    used = (*completed, *map(_order, _names(checkpoint / _SPARK)))
    last = max((start for of, start in used if of == generation), default=0)
    return checkpoint / _SPARK / f"{generation:0{_DIGITS}d}-{last + 1:02d}"


def complete(checkpoint: Path, folder: Path) -> None:
    """Says that a folder has all that Spark needs: from now on it holds."""
    (checkpoint / _READY / folder.name).touch()


def expire(checkpoint: Path) -> None:
    """Removes the folders that are older than the last complete ones, and what replaced drivers have left since."""
    stays = sorted(map(_order, _complete(checkpoint)))[-_KEPT:]
    for name in _names(checkpoint / _SPARK):
        if stays and _order(name) < stays[0]:
            (checkpoint / _READY / name).unlink(missing_ok=True)
            remove_tree(checkpoint / _SPARK / name)


def everything(checkpoint: Path) -> tuple[Path, ...]:
    """What all starts of a checkpoint have left."""
    return checkpoint / _READY, checkpoint / _SPARK


def _order(name: str) -> tuple[int, int]:
    """Generation and start."""
    generation, _, start = name.partition("-")
    return int(generation), int(start)


def _complete(checkpoint: Path) -> Iterator[str]:
    return _names(checkpoint / _READY)


def _names(folder: Path) -> Iterator[str]:
    try:
        yield from (path.name for path in folder.iterdir() if _NAME.fullmatch(path.name))
    except FileNotFoundError:
        return
