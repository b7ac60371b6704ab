"""Writes the locks of jars: `python -m deltaworks.stack.jar_locks kafka spark`.

It resolves the modules that `infra/components.toml` names for a set, with their dependencies if it says so, and
records the SHA-256 of each jar. A lock is reviewed like code; it alone decides what is downloaded.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from deltaworks.settings import Settings
from deltaworks.stack.components import Report, read_components
from deltaworks.stack.ivy import Module, download
from deltaworks.stack.jars import Jar, JarSet, lock_file, sha256_of
from deltaworks.stack.java import find_java


def make_lock(settings: Settings, name: str, report: Report) -> JarSet:
    """Resolves a set again; trusts what the repository serves now."""
    components = read_components(settings.infra)
    wanted = components.jars[name]
    java = find_java(settings, components.java_versions)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        modules = [Module.parse(text) for text in wanted.modules]
        download(java, settings, modules, into=folder, transitive=wanted.transitive, report=report)
        return JarSet(name, tuple(sorted((_locked(file) for file in folder.glob("*.jar")), key=lambda j: j.module)))


def write_lock(infra: Path, jars: JarSet) -> None:
    """Replaces the lock of the set."""
    header = f"# {len(jars.jars)} jars, {jars.size_bytes / 1e6:.0f} MB. Written by deltaworks.stack.jar_locks."
    lock_file(infra, jars.name).write_text("\n".join([header, *map(str, jars.jars)]) + "\n")


def _locked(file: Path) -> Jar:
    return Jar(Module.of_file(file), sha256_of(file), file.stat().st_size)


def main() -> None:
    """The command line."""
    settings = Settings.from_environment()
    for name in sys.argv[1:] or sorted(read_components(settings.infra).jars):
        jars = make_lock(settings, name, report=print)
        write_lock(settings.infra, jars)
        print(f"{name}: {len(jars.jars)} jars, {jars.size_bytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
