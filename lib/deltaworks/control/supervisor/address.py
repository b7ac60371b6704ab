"""Where the supervisor of a home listens: a file that only its user can read, since it has the token."""

from __future__ import annotations

from pathlib import Path

import msgspec

from deltaworks.control.lease import ProcessId
from deltaworks.files import replace_file

FORMAT = 1
_NAME = "supervisor.address"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a supervisor; written when it listens, removed when it leaves, stale when it was killed."""

    format: int = FORMAT
    host: str
    port: int
    token: str
    """What every question has to carry."""
    process: ProcessId
    machine: str
    """The host name there, for `process`."""


def read(run: Path) -> Address | None:
    """None if there is none, or one of another version of deltaworks.

    Args:
        run: folder of what runs in the home.
    """
    try:
        found = msgspec.json.decode((run / _NAME).read_bytes(), type=Address)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.format == FORMAT else None


def write(run: Path, address: Address) -> None:
    """Says that it listens."""
    replace_file(run / _NAME, msgspec.json.encode(address), mode=0o600)


def remove(run: Path, process: ProcessId) -> None:
    """Says that this process does not listen any more; the address of another one stays."""
    found = read(run)
    if found is not None and found.process == process:
        (run / _NAME).unlink(missing_ok=True)
