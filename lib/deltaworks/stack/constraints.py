"""The versions that deltaworks was tested with: the lock `runtime-constraints.txt`, a part of the distribution."""

from __future__ import annotations

from deltaworks.settings import Settings

FILE = "runtime-constraints.txt"


def locked(settings: Settings) -> str:
    """The lock with the hashes of all files, for `pip install --require-hashes -r`."""
    return (settings.infra / FILE).read_text(encoding="utf-8")


def versions(settings: Settings) -> str:
    """Its versions alone, one a line, for `pip install -c`, which takes no hashes."""
    entries = (line for line in locked(settings).splitlines() if line[:1].isalnum())
    return "".join(entry.rstrip(" \\") + "\n" for entry in entries)
