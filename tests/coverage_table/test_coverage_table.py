"""The page is complete, true and up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.stack.components import read_components
from tests.coverage_table import page
from tests.coverage_table.counterparts import covered_by, difference_in_docstring, find, public_members
from tests.coverage_table.java_api import JARS
from tests.coverage_table.mapping import read_mapping, rows
from tests.coverage_table.proofs import Proof, read_proofs
from tests.mutation.members import mutated
from tooling.jar_locks import read_modules

ROWS = rows(read_mapping())  # raises if a row is missing or empty
OURS = sorted({name for row in ROWS for name in row.ours})
PROOFS = read_proofs()
CAN_BE_MUTATED = [name for name in OURS if name in PROOFS and not PROOFS[name].because]
_HELD: dict[str, bool] = {}


def holds(proof: Proof) -> bool:
    """Once for all that it proves."""
    if proof.test not in _HELD:
        _HELD[proof.test] = proof.holds()
    return _HELD[proof.test]


@pytest.mark.parametrize("name", CAN_BE_MUTATED)
def test_proof_passes_and_fails_without_what_it_proves(name: str) -> None:
    proof = PROOFS[name]

    assert holds(proof), f"{proof.test} does not pass"
    with mutated(find(name)):
        assert not proof.holds(), f"{proof.test} passes without {name}"


def test_everything_of_ours_has_a_proof_that_exists() -> None:
    assert [name for name in OURS if name not in PROOFS] == []
    assert sorted(PROOFS.keys() - set(OURS)) == []
    assert [(name, proof.test) for name, proof in PROOFS.items() if not proof.exists()] == []


def test_everything_named_is_ours() -> None:
    for name in [*OURS, *page.read_extras()]:
        find(name)


def test_a_difference_in_a_docstring_is_in_its_rows() -> None:
    missing = [
        f"{row.method.owner} {row.method.name}: {name} {difference}"
        for row in ROWS
        if row.ours and not row.words
        for name in row.ours
        if (difference := difference_in_docstring(name)) is not None
    ]

    assert missing == []


def test_everything_public_is_in_a_row_or_among_the_extras() -> None:
    extras, in_rows = page.read_extras().keys(), covered_by(OURS)
    left = [name for name in public_members() if name not in in_rows | extras and name.partition(".")[0] not in extras]
    stale = [
        name
        for name in extras
        if name in in_rows and not {each for each in public_members() if each.startswith(f"{name}.")} - in_rows
    ]

    assert (left, stale) == ([], [])


def test_the_page_is_up_to_date() -> None:
    assert page.FILE.read_text() == page.text(), "run `make docs-coverage`"


def test_the_readme_has_the_counts() -> None:
    readme = page.README.read_text()

    assert page.counts(read_mapping()) in " ".join(readme.split()), "write the counts of docs/kafka-streams.md"


def test_the_jars_are_those_of_the_broker() -> None:
    version = read_components(Path(__file__).parents[2] / "infra").software["kafka"].version

    assert {module.rpartition(":")[2] for module in read_modules()[JARS].modules} == {version}
    assert page.text().startswith(f"# Kafka Streams {version}, ")
