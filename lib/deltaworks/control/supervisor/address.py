"""The address of a home's supervisor: a file that only its user can read, since it has the token."""

from __future__ import annotations

from pathlib import Path

import msgspec

from deltaworks.control.lease import ProcessId
from deltaworks.files import replace_file

FORMAT = 1
_NAME = "supervisor.address"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a supervisor; written when it listens, removed when it leaves, stale if it was killed."""

    format: int = FORMAT
    host: str
    port: int
    token: str
    """The token that every question has to carry."""
    process: ProcessId
    machine: str
    """The host name of `process`."""


def read(run: Path) -> Address | None:
    """Reads the address; None if there is none, or one of another version of deltaworks.

    Args:
        run: folder of the running processes of the home.
    """
    try:
        found = msgspec.json.decode((run / _NAME).read_bytes(), type=Address)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.format == FORMAT else None


def write(run: Path, address: Address) -> None:
    """Announces that a supervisor listens."""
    replace_file(run / _NAME, msgspec.json.encode(address), mode=0o600)


def remove(run: Path, process: ProcessId) -> None:
    """Removes the address of this process; the address of another one stays."""
    found = read(run)
    if found is not None and found.process == process:
        (run / _NAME).unlink(missing_ok=True)
