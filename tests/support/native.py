"""Libraries in C that tests preload into processes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


class NoCompilerError(Exception):
    """There is no C compiler, or it does not compile."""


def build(source: Path, library: Path) -> None:
    """Compiles a library.

    Raises:
        NoCompilerError: there is no compiler, or it does not compile.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompilerError(f"{source.name} needs a C compiler: apt-get install gcc libc6-dev")
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        raise NoCompilerError(f"{' '.join(command)}:\n{built.stderr}")
