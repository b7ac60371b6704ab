"""The front end of the page: its lock, and that what is committed is what its sources give."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tooling import front_end


def test_the_lock_has_versions_and_hashes_and_no_addresses() -> None:
    text = (front_end.SOURCES / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    named = json.loads((front_end.SOURCES / "package.json").read_text())

    assert "://" not in text
    assert [name for name, each in packages.items() if name and not {"version", "integrity"} <= each.keys()] == []
    for name, version in (named["dependencies"] | named["devDependencies"]).items():
        assert packages[f"node_modules/{name}"]["version"] == version, "run `python -m tooling.front_end --lock`"


def test_what_is_built_names_each_file_and_nothing_elsewhere() -> None:
    page = (front_end.STATIC / "index.html").read_text()
    assets = {file.name for file in (front_end.STATIC / "assets").iterdir()}

    named = {each.partition('"')[0] for each in page.split("./assets/")[1:]}
    assert named | {"licences.txt"} == assets
    assert "://" not in page
    assert sum(file.stat().st_size for file in (front_end.STATIC / "assets").iterdir()) < 150_000


@pytest.mark.slow
def test_what_is_committed_is_what_the_sources_give(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.fail("There is no npm on the PATH. Debian, Ubuntu: apt install npm")

    front_end.build(tmp_path / "static", tmp_path / "work")

    def content(folder: Path) -> dict[str, bytes]:
        return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}

    assert content(tmp_path / "static") == content(front_end.STATIC), "run `make ui`"
