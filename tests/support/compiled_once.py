"""Archives of the code in tests: compiling all files of the package anew for each was most of their time."""

from __future__ import annotations

import hashlib
import importlib.util
import py_compile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_compile = py_compile.compile
_KEPT: dict[tuple[str, py_compile.PycInvalidationMode], bytes] = {}
"""SHA-256 of a source and the kind of file -> what it was compiled to in this process."""


@pytest.fixture
def compiled_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`py_compile.compile` writes what it has written for the same source before."""
    monkeypatch.setattr(py_compile, "compile", _compiled)
    yield


def _compiled(file: str, *, invalidation_mode: py_compile.PycInvalidationMode, **how: Any) -> str | None:
    key = hashlib.sha256(Path(file).read_bytes()).hexdigest(), invalidation_mode
    target = Path(importlib.util.cache_from_source(file))
    if key in _KEPT:
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(_KEPT[key])
    elif _compile(file, invalidation_mode=invalidation_mode, **how) is not None:
        _KEPT[key] = target.read_bytes()
    return str(target) if key in _KEPT else None
