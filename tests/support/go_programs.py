"""Programs in Go that ask the real thing: built from source, once per user."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deltaworks.settings import Settings


def built(source: Path) -> Path:
    """The program in a folder; skips the test loudly where there is no Go, or its modules are out of reach."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(source.iterdir()))).hexdigest()
    program = Settings.from_environment().cache / "tools" / f"{source.name}-{digest[:16]}"
    if not program.is_file():
        if (go := shutil.which("go")) is None:
            pytest.skip(f"LOUDLY: Go is not installed, so {source.name} was not asked")
        built = subprocess.run(
            [go, "build", "-o", program, "."], cwd=source, capture_output=True, text=True, timeout=280, check=False
        )
        if built.returncode != 0 and re.search(r"dial tcp|proxyconnect|no such host|403|404", built.stderr):
            pytest.skip(f"LOUDLY: the modules of {source.name} cannot be downloaded: {built.stderr[-500:]}")
        assert built.returncode == 0, built.stderr
    return program
