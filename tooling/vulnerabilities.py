"""Checks the locked packages for known vulnerabilities: `python -m tooling.vulnerabilities`.

It asks the package index, whose JSON API repeats PyPI's advisory database (`vulnerabilities`). So it needs the network
and an index with that API; a mirror that has only files does not do. Jars and modules of Go are not checked,
because no repository of them offers this.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

from deltaworks.errors import ConfigurationError, TransientError
from tooling import python_lock
from tooling.python_lock import Package

ACCEPTED = "infra/accepted-vulnerabilities.toml"
_AT_ONCE = 8
_TIMEOUT_S = 30.0


@dataclass(frozen=True, order=True)
class Vulnerability:
    """One advisory about one package."""

    package: str
    version: str
    id: str
    aliases: tuple[str, ...]
    fixed_in: tuple[str, ...]

    def __str__(self) -> str:
        fixed = ", ".join(self.fixed_in) or "no version yet"
        names = f"{self.id} ({', '.join(self.aliases)})" if self.aliases else self.id
        return f"{self.package} {self.version}: {names}, fixed in {fixed}"


@dataclass(frozen=True)
class Audit:
    """The result for all packages."""

    open: tuple[Vulnerability, ...]
    accepted: tuple[Vulnerability, ...]
    unneeded: tuple[str, ...]
    """Accepted vulnerabilities that are no longer found."""


def audit(packages: Iterable[Package], accepted: Mapping[str, Mapping[str, str]], client: httpx.Client) -> Audit:
    """Checks every package.

    Args:
        packages: packages of the locks.
        accepted: id -> package and reason.
        client: a client with the index's JSON API as its base URL.

    Raises:
        TransientError: the index does not answer or does not know a package, which does not count as a pass.
    """
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = threads.map(lambda package: _ask(client, package), packages)
        found = sorted(vulnerability for answer in answers for vulnerability in answer)
    is_accepted = {
        v: any(accepted.get(name, {}).get("package") == v.package for name in (v.id, *v.aliases)) for v in found
    }
    seen = {name for v in found for name in (v.id, *v.aliases)}
    return Audit(
        tuple(v for v in found if not is_accepted[v]),
        tuple(v for v in found if is_accepted[v]),
        tuple(sorted(accepted.keys() - seen)),
    )


def read_accepted(file: Path) -> dict[str, dict[str, str]]:
    """Reads the accepted vulnerabilities: id -> package and reason.

    Raises:
        ConfigurationError: an entry has no package or no reason.
    """
    entries: dict[str, dict[str, str]] = tomllib.loads(file.read_text())
    for name, entry in entries.items():
        if not entry.get("package") or not entry.get("reason"):
            raise ConfigurationError(
                f"{file.name}: {name} has no package or no reason.",
                hint=f'["{name}"] with package = "..." and reason = "why it does not concern us"',
            )
    return entries


def base_url(environ: Mapping[str, str]) -> str:
    """The JSON API of the index that packages come from."""
    index = environ.get("UV_DEFAULT_INDEX") or environ.get("PIP_INDEX_URL")
    if index:
        return index.rstrip("/").removesuffix("/simple") + "/pypi"
    from distlib.index import DEFAULT_INDEX  # type: ignore[import-untyped]

    return str(DEFAULT_INDEX)


def _ask(client: httpx.Client, package: Package) -> list[Vulnerability]:
    path = f"{package.name}/{package.version}/json"
    try:
        answer = client.get(path)
        known = answer.json()["vulnerabilities"] if answer.status_code == httpx.codes.OK else None
    except httpx.HTTPError as error:
        raise TransientError(
            f"The package index does not answer about {package.name} {package.version}: {error!r}",
            hint="check the network; index, proxy and certificates come from the environment",
        ) from error
    except (ValueError, LookupError):
        known = None
    if known is None:
        raise TransientError(
            f"The package index says nothing about {package.name} {package.version} (status {answer.status_code}).",
            hint="a mirror often has only files; name an index with PyPI's JSON API in UV_DEFAULT_INDEX",
        )
    return [
        Vulnerability(
            package.name, package.version, entry["id"], tuple(entry.get("aliases") or ()), tuple(entry["fixed_in"])
        )
        for entry in known
        if not entry.get("withdrawn")
    ]


def main(root: Path) -> int:
    """Prints the result; returns 1 if a vulnerability is open or the check could not run."""
    try:
        packages, accepted = python_lock.read(root), read_accepted(root / ACCEPTED)
        with httpx.Client(
            base_url=base_url(os.environ), timeout=_TIMEOUT_S, follow_redirects=True, trust_env=True
        ) as client:
            result = audit(packages, accepted, client)
    except (ConfigurationError, TransientError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for vulnerability in result.open:
        print(vulnerability)
    for vulnerability in result.accepted:
        print(f"accepted: {vulnerability}")
    for name in result.unneeded:
        print(f"no longer needed in {ACCEPTED}: {name}")
    print(f"{len(packages)} packages, {len(result.open)} open vulnerabilities, {len(result.accepted)} accepted")
    if result.open:
        print(f"  Hint: upgrade to a version that fixes it (make lock), or add it to {ACCEPTED} with a reason")
    return 1 if result.open else 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
