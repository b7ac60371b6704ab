"""`python -m tests.coverage_table`: writes `docs/kafka-streams.md`.

`... api` reads the list of methods from the jars of Kafka Streams.
`... prove KStream.filter [family]` looks for recorded cases that fail when something of ours is mutated.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

from deltaworks.settings import Settings
from deltaworks.stack.jars import ensure_jars
from tests.coverage_table import counterparts, java_api, page
from tests.coverage_table.proofs import Proof, recorded_cases
from tests.mutation.members import mutated

_ENOUGH = 5


def main(arguments: list[str]) -> None:
    match arguments:
        case []:
            page.FILE.write_text(page.text())
        case ["api"]:
            java_api.write(java_api.read_jars(ensure_jars(Settings.from_environment(), java_api.JARS, print)))
        case ["prove", name, *families]:
            print(*itertools.islice(proving(name, families), _ENOUGH), sep="\n")
        case _:
            sys.exit(__doc__)


def proving(name: str, families: list[str]) -> Iterator[str]:
    """Recorded cases that pass, and fail without it; those that have its name in theirs first."""
    counterpart = counterparts.find(name)
    words = (counterpart.argument or counterpart.member or "").split("_")
    cases = [case for case in recorded_cases() if not families or case.partition("/")[0] in families]
    for case in sorted(cases, key=lambda case: -sum(word in case.split("_") for word in words)):
        proof = Proof(case)
        with mutated(counterpart):
            if proof.holds():
                continue
        if proof.holds():
            yield case


if __name__ == "__main__":
    main(sys.argv[1:])
