"""Writes the locks of jars: `python -m tooling.jar_locks kafka spark`.

Resolves the modules that `tooling/jars.toml` names for a set, with what they depend on if it says so, and
records the SHA-256 of each jar. A lock is reviewed like code; nothing else decides what is downloaded.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deltaworks.settings import Settings
from deltaworks.stack.components import Report, read_components
from deltaworks.stack.ivy import Module, download
from deltaworks.stack.jars import Jar, JarSet, lock_file, sha256_of
from deltaworks.stack.java import find_java


@dataclass(frozen=True, kw_only=True)
class JarModules:
    """What a lock is made from."""

    modules: tuple[str, ...]
    """As `Module.parse` reads them."""
    transitive: bool
    """With everything that they depend on."""


def read_modules() -> Mapping[str, JarModules]:
    """The sets by their names."""
    content = tomllib.loads((Path(__file__).parent / "jars.toml").read_text())
    return {
        name: JarModules(modules=tuple(entry["modules"]), transitive=entry["transitive"])
        for name, entry in content.items()
    }


def make_lock(settings: Settings, name: str, report: Report) -> JarSet:
    """Resolves a set anew; trusts what the repository serves now."""
    wanted = read_modules()[name]
    java = find_java(settings, read_components(settings.infra).java_versions)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        modules = [Module.parse(text) for text in wanted.modules]
        download(java, settings, modules, into=folder, transitive=wanted.transitive, report=report)
        others = {module.file_name: module for module in modules if not module.is_jar}
        found = [locked(file, others.get(file.name)) for file in folder.iterdir() if file.is_file()]
        return JarSet(name, tuple(sorted(found, key=lambda jar: jar.module)))


def locked(file: Path, module: Module | None = None) -> Jar:
    """The entry of a file that has `Module.file_name`; without a module, it is a jar."""
    if module is None:
        module = Module(*file.name.removesuffix(".jar").split("__"))
    return Jar(module, sha256_of(file), file.stat().st_size)


def write_lock(infra: Path, jars: JarSet) -> None:
    """Replaces the lock of the set."""
    header = f"# {len(jars.jars)} jars, {_size_mb(jars):.0f} MB. Written by tooling.jar_locks."
    lock_file(infra, jars.name).write_text("\n".join([header, *map(str, jars.jars)]) + "\n")


def _size_mb(jars: JarSet) -> float:
    """What a first download costs."""
    return sum(jar.size_bytes for jar in jars.jars) / 1e6


def main() -> None:
    """The command line."""
    settings = Settings.from_environment()
    for name in sys.argv[1:] or sorted(read_modules()):
        jars = make_lock(settings, name, report=print)
        write_lock(settings.infra, jars)
        print(f"{name}: {len(jars.jars)} jars, {_size_mb(jars):.1f} MB")


if __name__ == "__main__":
    main()
