"""A plugin of pytest that refuses to test another package than the installed one: `-p tests.versions.plugin`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import deltaworks


def pytest_configure() -> None:
    package = Path(deltaworks.__file__)
    if not package.is_relative_to(sys.prefix):
        raise pytest.UsageError(f"{package} is not in {sys.prefix}: it is not the installed package that is tested.")
