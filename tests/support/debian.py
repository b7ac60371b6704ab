"""Programs from Debian's packages, without root: downloaded and unpacked into a folder of this user."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from deltaworks.files import alone
from deltaworks.settings import Settings
from deltaworks.stack import debian


def unpacked(packages: Sequence[str]) -> Path:
    """The folder that stands for `/`, made once per set of packages; skips the test where there is no apt."""
    settings = Settings.from_environment()
    if not debian.is_here(settings):
        pytest.skip("LOUDLY: Debian's packages need apt-get and dpkg")
    name = "-".join(packages)
    debs = debian.ensure_packages(settings, name, packages, print)
    root = settings.cache / "debian" / name / "unpacked"
    with alone(root.with_name("unpacked.lock")):
        debian.unpack(settings, debs, root)
    return root


def environment(root: Path) -> dict[str, str]:
    """In which its programs find their libraries."""
    return {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath, "LD_LIBRARY_PATH": debian.libraries(root)}
