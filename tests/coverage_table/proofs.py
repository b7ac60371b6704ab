"""The tests that prove what the mapping says of ours: `proofs.toml`.

```toml
"KStream.filter" = "stateless/filter_keeps_matching"             # family and name of a recorded case
"Materialized.__eq__" = "tests/unit/x/test_y.py::test_z[case]"   # a test without fixtures
"$ deltaworks run" = { test = "tests/...::test_...", because = "starts processes" }   # cannot be mutated here
```
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.compare import differences
from tests.conformance.data import Case, curated, described, without_expectations
from tests.conformance.run import describe_case, run_case

_FILE = Path(__file__).with_name("proofs.toml")
_ROOT = Path(__file__).parents[2]
_CASES = "tests/conformance/data/cases"


@dataclass(frozen=True)
class Proof:
    """A test of something of ours."""

    test: str
    because: str = ""
    """Why it cannot be mutated here; empty: it can."""

    @property
    def is_recorded(self) -> bool:
        """A case that the real Kafka Streams has answered."""
        return "::" not in self.test

    @property
    def file(self) -> str:
        """Where it is, from the top of the repository."""
        if self.is_recorded:
            return f"{_CASES}/{self.test.partition('/')[0]}.json"
        return self.test.partition("::")[0]

    @property
    def name(self) -> str:
        """Without the file."""
        return self.test.partition("/")[2] if self.is_recorded else self.test.partition("::")[2]

    def holds(self) -> bool:
        """Runs it."""
        try:
            return _is_as_recorded(_case(self.test)) if self.is_recorded else _passes(self.test)
        except (Exception, pytest.fail.Exception):
            return False

    def exists(self) -> bool:
        """There is such a test."""
        if self.is_recorded:
            return self.test in _cases()
        name = self.name.partition("[")[0]
        return (_ROOT / self.file).is_file() and f"def {name}(" in (_ROOT / self.file).read_text()


def read_proofs() -> dict[str, Proof]:
    """By counterpart."""
    return {
        name: Proof(entry) if isinstance(entry, str) else Proof(entry["test"], entry["because"])
        for name, entry in tomllib.loads(_FILE.read_text()).items()
    }


def recorded_cases() -> list[str]:
    """`family/name` of every recorded case."""
    return list(_cases())


@cache
def _cases() -> dict[str, Case]:
    return {f"{case['family']}/{case['name']}": case for case in curated()}


def _case(test: str) -> Case:
    return _cases()[test]


def _is_as_recorded(case: Case) -> bool:
    plain = without_expectations(case)
    if differences(case, run_case(plain)):
        return False
    return not described(case) or describe_case(plain) == case["expected"]["describe"]


def _passes(test: str) -> bool:
    file, _, name = test.partition("::")
    function_name, _, parameter = name.removesuffix("]").partition("[")
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    function: Callable[..., Any] = getattr(module, function_name)
    function(*([parameter] if parameter else []))
    return True
