"""The page is complete, true and up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coverage_table import page
from tests.coverage_table.counterparts import find, public_members
from tests.coverage_table.disabling import disabled
from tests.coverage_table.mapping import read_mapping, rows
from tests.coverage_table.proofs import Proof, read_proofs

ROWS = rows(read_mapping())  # raises if a row is missing or empty
OURS = sorted({name for row in ROWS for name in row.ours})
PROOFS = read_proofs()
CAN_BE_DISABLED = [name for name in OURS if name in PROOFS and not PROOFS[name].because]
_HELD: dict[str, bool] = {}


def holds(proof: Proof) -> bool:
    """Once for all that it proves."""
    if proof.test not in _HELD:
        _HELD[proof.test] = proof.holds()
    return _HELD[proof.test]


@pytest.mark.parametrize("name", CAN_BE_DISABLED)
def test_proof_passes_and_fails_without_what_it_proves(name: str) -> None:
    proof = PROOFS[name]
    with disabled(find(name)):
        without = proof.holds()

    assert (holds(proof), without) == (True, False), proof.test


def test_everything_of_ours_has_a_proof_that_exists() -> None:
    assert [name for name in OURS if name not in PROOFS] == []
    assert sorted(PROOFS.keys() - set(OURS)) == []
    assert [(name, proof.test) for name, proof in PROOFS.items() if not proof.exists()] == []


def test_everything_named_is_ours() -> None:
    for name in [*OURS, *page.read_extras()]:
        find(name)


def test_everything_public_is_in_a_row_or_among_the_extras() -> None:
    without_arguments = {name.partition("(")[0] for name in OURS}
    extras = page.read_extras().keys()
    known = without_arguments | extras | {name.partition(".")[0] for name in without_arguments}

    assert [n for n in public_members() if n not in known and n.partition(".")[0] not in extras] == []
    assert sorted(extras & without_arguments) == []


def test_the_page_is_up_to_date() -> None:
    assert page.FILE.read_text() == page.text(), "run `make docs-coverage`"


def test_the_readme_has_the_counts() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()

    assert page.counts(read_mapping()) in readme
