"""Runs the recorded cases and prints how many are equal: `python -m tests.conformance [family or name]...`.

Without names all of them. `-v` shows the differences of the first few cases, `-n` names the cases that differ.
"""

from __future__ import annotations

import sys
from collections import defaultdict

from tests.conformance.compare import differences
from tests.conformance.data import curated, described, generated, once_different, random, without_expectations
from tests.conformance.run import describe_case, run_case

_SHOWN = 3


def main(arguments: list[str]) -> int:
    wanted = [argument for argument in arguments if not argument.startswith("-")]
    results: dict[str, list[bool]] = defaultdict(list)
    shown = 0
    for case in [*curated(), *random(), *generated(), *once_different()]:
        if wanted and not any(each in (case["family"], case["name"]) for each in wanted):
            continue
        plain = without_expectations(case)
        try:
            found = differences(case, run_case(plain))
            if described(case) and describe_case(plain) != case["expected"]["describe"]:
                found.append(f"describe:\n{case['expected']['describe']}\n-- ours:\n{describe_case(plain)}")
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        results[case["family"]].append(not found)
        if found and "-v" in arguments and shown < _SHOWN:
            shown += 1
            print(
                f"{case['family']} {case['name']}\n{case['spec']}\n{case['config']}\n{case['inputs']}", *found, sep="\n"
            )
        elif found and "-n" in arguments:
            print(case["family"], case["name"], found[0].partition("\n")[0][:150])
    for family, equal in sorted(results.items()):
        print(f"{family:28} {sum(equal):5} of {len(equal):5} equal")
    wrong = sum(not each for equal in results.values() for each in equal)
    print(f"{'all':28} {sum(map(sum, results.values())):5} of {sum(map(len, results.values())):5} equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
