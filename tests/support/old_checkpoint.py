"""The home of a pipeline whose checkpoint has format 2, as a version of then has left it: `orders`, two batches."""

from __future__ import annotations

import tarfile
from pathlib import Path

_ARCHIVE = Path(__file__).with_name("checkpoint-format-2.tar.gz")


def unpack(folder: Path) -> None:
    """Puts it there."""
    with tarfile.open(_ARCHIVE) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4; Debian's is older
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)
