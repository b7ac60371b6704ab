"""Builds the front end of the page of the streams: `python -m tooling.front_end`, after a change in `infra/ui`.

Sources and lock are in `infra/ui`; what is built goes into `lib/deltaworks/ui/static`, which is committed, so that
nobody else needs Node.js. The same sources give the same files: a test builds them again.

`python -m tooling.front_end --lock` resolves the packages anew. The lock has versions and hashes and no addresses: each
machine takes the packages from the registry that its npm is set up for.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "infra" / "ui"
STATIC = ROOT / "lib" / "deltaworks" / "ui" / "static"
WORK = ROOT / "build" / "ui"


def build(out: Path, work: Path = WORK) -> None:
    """Builds into a folder, which it replaces.

    Args:
        out: the folder.
        work: where packages are installed and sources are copied to.
    """
    _copied(work)
    _run(work, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    _run(work, "npx", "--no-install", "tsc", "--noEmit")
    _run(work, "npx", "--no-install", "vite", "build", "--logLevel", "warn", "--outDir", str(work / "dist"))
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(work / "dist", out)


def lock(work: Path = WORK) -> None:
    """Writes the lock anew, of what `package.json` names."""
    _copied(work)
    _run(work, "npm", "install", "--package-lock-only", "--no-audit", "--no-fund", "--ignore-scripts")
    content = json.loads((work / "package-lock.json").read_text())
    for package in content["packages"].values():
        package.pop("funding", None)
        package.pop("resolved", None)
    (SOURCES / "package-lock.json").write_text(json.dumps(content, indent=2) + "\n")


def _copied(work: Path) -> None:
    """Copies the sources, and leaves packages that are installed."""
    work.mkdir(parents=True, exist_ok=True)
    for entry in work.iterdir():
        if entry.name != "node_modules":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copytree(SOURCES, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    if "--lock" in sys.argv[1:]:
        lock()
    build(STATIC)
