"""Code of a project in a process of its own, which imports it as it is now: whatever it does, whoever asks goes on.

The process runs a module of ours. That imports the code and hands over one JSON document, between marks, since the code
may print before and after it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

T = TypeVar("T")
_OUT = 1
"""The descriptor that `ask` reads."""
_MARK = b"\0\0deltaworks\0\0"


def ask(
    settings: Settings,
    module: str,
    *arguments: str,
    kind: type[T],
    what: str,
    patience_s: int,
    folder: Path | None = None,
) -> T:
    """What a module says of the code.

    Args:
        settings: say where the code is.
        module: is run with `python -m`, and calls `answer`.
        arguments: of it.
        kind: of its answer.
        what: the code, for the error.
        patience_s: so long it has.
        folder: where it runs; None: here.

    Raises:
        ConfigurationError: there is no answer, or not in time.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=folder,
            env=settings.process_environment() | {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=patience_s,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(f"{what} was not imported within {patience_s} s.") from error
    try:
        return msgspec.json.decode(done.stdout.partition(_MARK)[2].partition(_MARK)[0], type=kind)
    except msgspec.DecodeError as error:
        said = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace").splitlines()[-1:]
        last = "".join(said) or "it said nothing"
        raise ConfigurationError(
            f"The process that imports {what} ended with exit code {done.returncode}: {last}."
        ) from error


def answer(document: msgspec.Struct) -> None:
    """Hands over what the module says; once. The code may have replaced `sys.stdout`, or closed it."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with open(_OUT, "wb", closefd=False) as out:
        out.write(_MARK + msgspec.json.encode(document) + _MARK)
