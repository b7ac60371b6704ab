"""The committed bill of materials is that of the locks, and leaves no licence open."""

from __future__ import annotations

import base64
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from deltaworks.stack.jars import read_lock
from tooling import bill_of_materials, front_end, python_lock
from tooling.bill_of_materials import licence_of

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def listed() -> dict[str, dict[str, Any]]:
    content = json.loads((ROOT / bill_of_materials.BILL).read_text())
    assert (content["bomFormat"], content["specVersion"]) == ("CycloneDX", "1.6")
    return {component["purl"]: component for component in content["components"]}


def hashes(component: dict[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(entry["content"] for entry in component["hashes"]))


def test_every_package_of_the_locks_is_listed_with_its_hashes(listed: dict[str, dict[str, Any]]) -> None:
    expected = {f"pkg:pypi/{p.name}@{p.version}": p.hashes for p in python_lock.read(ROOT)}

    assert {purl: hashes(c) for purl, c in listed.items() if purl.startswith("pkg:pypi/")} == expected, "run `make bom`"
    assert all(expected.values())


def test_every_jar_of_the_locks_is_listed_with_its_hash(listed: dict[str, dict[str, Any]]) -> None:
    locks = [read_lock(ROOT / "infra", file.stem) for file in (ROOT / "infra/jars").glob("*.lock")]
    jars = [jar for lock in locks for jar in lock.jars]
    expected = {f"{j.module.group}:{j.module.artifact}:{j.module.version}": (j.sha256,) for j in jars}

    found = {f"{c['name']}:{c['version']}": hashes(c) for purl, c in listed.items() if purl.startswith("pkg:maven/")}
    assert found == expected, "run `make bom`"


def test_every_module_of_go_is_listed_and_has_a_checksum(listed: dict[str, dict[str, Any]]) -> None:
    found = {purl.removeprefix("pkg:golang/") for purl in listed if purl.startswith("pkg:golang/")}
    sums = (ROOT / "infra/axonops/go.sum").read_text()

    assert "github.com/axonops/axonops-schema-registry@v0.2.1" in found
    assert len(found) == len(re.findall(r" v\d", (ROOT / "infra/axonops/go.mod").read_text()))
    assert [module for module in found if f"{module.replace('@', ' ')} h1:" not in sums] == []


def test_what_is_in_the_page_and_what_builds_it_is_listed_with_hash_and_licence(
    listed: dict[str, dict[str, Any]],
) -> None:
    found = {purl: component for purl, component in listed.items() if purl.startswith("pkg:npm/")}
    lock = json.loads((front_end.SOURCES / "package-lock.json").read_text())["packages"]
    named = json.loads((front_end.SOURCES / "package.json").read_text())
    notices = (front_end.SOURCES / "public/assets/licences.txt").read_text()

    assert len(found) == len(lock) - 1
    for name, version in (named["dependencies"] | named["devDependencies"]).items():
        component = found[f"pkg:npm/{name}@{version}"]
        integrity = base64.b64encode(bytes.fromhex(hashes(component)[0])).decode()
        assert lock[f"node_modules/{name}"]["integrity"] == f"sha512-{integrity}"
        assert licence_of(component) == lock[f"node_modules/{name}"]["license"]
    assert "pkg:npm/%40oxc-project/types" in "".join(found)
    assert [name for name in named["dependencies"] if f"== {name}\n" not in notices.lower()] == []


def test_every_licence_is_known(listed: dict[str, dict[str, Any]]) -> None:
    unknown = [purl for purl, component in listed.items() if licence_of(component) == bill_of_materials.UNKNOWN]

    assert unknown == [], f"look at what they say, and add them to {bill_of_materials.TABLE}"


def test_every_entry_of_the_table_has_a_reason_and_is_needed() -> None:
    table = tomllib.loads((ROOT / bill_of_materials.TABLE).read_text())

    assert [name for part in table.values() for name, entry in part.items() if not entry["reason"]] == []
    assert table["python"].keys() <= {package.name for package in python_lock.read(ROOT)}
    modules = (ROOT / "infra/axonops/go.mod").read_text()
    assert [path for path in table["modules"] if f"{path} v" not in modules] == []


def test_the_committed_files_are_what_is_written_now() -> None:
    text = (ROOT / bill_of_materials.BILL).read_text()

    assert text == bill_of_materials.bill(ROOT), "run `make bom`"
    assert (ROOT / bill_of_materials.LICENCES).read_text() == bill_of_materials.page(text), "run `make bom`"


def test_nothing_of_this_machine_or_moment_is_in_it() -> None:
    text = (ROOT / bill_of_materials.BILL).read_text()

    assert not re.search(r"://|timestamp|serialNumber|/home/|/root/|site-packages", text)


def test_a_package_that_says_no_licence_is_listed_as_such() -> None:
    assert bill_of_materials._declared("no-such-package") == "unknown"
    assert bill_of_materials._declared("pytest") == "MIT"


def test_a_lock_is_read_with_markers_hashes_and_several_versions() -> None:
    text = (
        "numpy==2.4.6 ; python_full_version < '3.12' \\\n"
        f"    --hash=sha256:{'b' * 64} \\\n    --hash=sha256:{'a' * 64}\n    # via pandas\n"
        f"numpy==2.5.5 ; python_full_version >= '3.12' \\\n    --hash=sha256:{'c' * 64}\n"
        "six==1.17.0\n"
    )

    assert [(p.name, p.version, [h[0] for h in p.hashes]) for p in python_lock.parse(text)] == [
        ("numpy", "2.4.6", ["a", "b"]),
        ("numpy", "2.5.5", ["c"]),
        ("six", "1.17.0", []),
    ]
