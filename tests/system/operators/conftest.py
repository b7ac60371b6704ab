"""What was counted is the last line of the run."""

from __future__ import annotations

import pytest

_counted: list[str] = []


def counted(line: str) -> None:
    """Adds to the last line."""
    _counted.append(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _counted:
        print("; ".join(_counted))
