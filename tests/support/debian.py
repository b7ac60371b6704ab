"""Programs from Debian's packages, without root: downloaded and unpacked into a folder of this user."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from deltaworks.files import alone
from deltaworks.settings import Settings


def unpacked(packages: Sequence[str]) -> Path:
    """The folder that stands for `/`, made once per set of packages; skips the test where there is no apt."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip("LOUDLY: Debian's packages need apt-get and dpkg")
    folder = Settings.from_environment().cache / "debian" / "-".join(packages)
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        root = folder / "root"
        if not root.is_dir():
            _unpack(packages, folder)
        return root


def environment(root: Path) -> dict[str, str]:
    """In which its programs find their libraries."""
    libraries = [root / part / "x86_64-linux-gnu" for part in ("usr/lib", "lib")]
    return {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath, "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries))}


def _unpack(packages: Sequence[str], folder: Path) -> None:
    lists, cache, debs, new = (folder / name for name in ("lists", "cache", "debs", "root.new"))
    for each in (lists / "partial", cache / "archives" / "partial", debs, new):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir(parents=True)
    options = {
        "Dir::State::lists": lists,
        "Dir::Cache": cache,
        "Dir::State::status": "/var/lib/dpkg/status",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": 1,
    }
    apt = ["apt-get", "-q", *(text for name, value in options.items() for text in ("-o", f"{name}={value}"))]
    for command in ([*apt, "update"], [*apt, "download", *packages]):
        done = subprocess.run(command, cwd=debs, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for deb in debs.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(deb), str(new)], check=True)
    new.rename(folder / "root")
