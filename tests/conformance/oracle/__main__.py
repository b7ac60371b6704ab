"""Runs variations of the recorded cases with the real Kafka Streams and with ours: `make check-oracle`.

`python -m tests.conformance.oracle [--seed N] [--count N] [--recorded | --freeze N] [family]...`

Cases that differ are written, with what Kafka Streams does, to `.deltaworks/oracle/<seed>.jsonl`, in the form of the
recorded ones. `--recorded` checks the oracle itself: it must reproduce every recorded case. `--freeze N` keeps N new
cases of each family, with what Kafka Streams does in them, in `data/generated.jsonl.gz`. Needs a JDK.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from deltaworks.settings import Settings
from tests.conformance.compare import differences
from tests.conformance.data import GENERATED, Case, curated, generated, once_different, without_expectations
from tests.conformance.data import random as recorded_random
from tests.conformance.oracle.frozen import telling
from tests.conformance.oracle.kafka_streams import KafkaStreams, OracleError
from tests.conformance.oracle.reduced import reduced
from tests.conformance.oracle.variations import variations
from tests.conformance.run import describe_case, run_case

_SHOWN = 3
_INTERNAL = re.compile(r"topics: \[([^\]]+-(?:repartition|topic))\]")
_FIELDS = ("outputs", "peeked", "stores", "describe")

Observed = dict[str, Any]


def main(arguments: list[str]) -> int:
    """The command line."""
    options, settings = _options(arguments), Settings.from_environment()
    with KafkaStreams(settings) as oracle:
        if options.recorded:
            all_cases = [*curated(), *recorded_random(), *generated(), *once_different()]
            recorded = (case for case in all_cases if _is_wanted(case, options.families))
            return _report(recorded, oracle, _recorded, None)
        if options.freeze:
            return _freeze(options.seed, options.freeze, oracle)
        print(f"seed {options.seed}")
        cases = itertools.islice(variations(options.seed, options.families), options.count)
        folder = settings.home / "oracle"
        folder.mkdir(parents=True, exist_ok=True)
        return _report(cases, oracle, _ours, folder / f"{options.seed}.jsonl")


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.oracle")
    parser.add_argument("families", nargs="*", metavar="family", help="a part of its name; without any, all")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="default: a new one")
    parser.add_argument("--count", type=int, default=1000, help="how many cases; default 1000")
    parser.add_argument("--recorded", action="store_true", help="check the oracle against the recorded cases")
    parser.add_argument("--freeze", type=int, metavar="N", help="keep N cases of each family for where there is no JVM")
    return parser.parse_args(arguments)


def _is_wanted(case: Case, families: list[str]) -> bool:
    return not families or any(each in case["family"] for each in families)


def _ours(case: Case) -> Observed:
    plain = without_expectations(case)
    try:
        observed = run_case(plain)
        return observed if "error" in observed else observed | {"describe": describe_case(plain)}
    except Exception as error:  # a defect of ours is a difference, not the end of the run
        where = traceback.extract_tb(error.__traceback__)[-1]
        return {"defect": f"{type(error).__name__}: {error}\n  at {where.filename}:{where.lineno}"}


def _recorded(case: Case) -> Observed:
    expected: Observed = case["expected"]
    return expected


def _freeze(seed: int, per_family: int, oracle: KafkaStreams) -> int:
    def asked(case: Case) -> Case:
        oracle.send(without_expectations(case))
        return case | {"expected": with_order(case, oracle.receive())}

    families = len({case["family"] for case in [*curated(), *recorded_random()]})
    cases = sorted(telling(variations(seed), per_family, families, asked), key=lambda case: str(case["family"]))
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    GENERATED.write_bytes(gzip.compress(lines.encode(), mtime=0))
    print(f"{len(cases)} cases in {GENERATED}, {GENERATED.stat().st_size} bytes")
    return 0


def _report(cases: Iterable[Case], oracle: KafkaStreams, other: Callable[[Case], Observed], file: Path | None) -> int:
    """Compares the oracle with another one, case by case, and prints how many are equal."""
    tried: Counter[str] = Counter()
    different: Counter[str] = Counter()
    lines: list[str] = []
    for case in cases:
        expected, found = _compared(case, oracle, other)
        tried[case["family"]] += 1
        if not found:
            continue
        different[case["family"]] += 1
        if file is not None:
            case = reduced(case, partial(_shows, _what(found), oracle=oracle, other=other))
            expected, found = _compared(case, oracle, other)
        lines.append(json.dumps(case | {"expected": expected}) + "\n")
        if len(lines) <= _SHOWN:
            print(case["family"], case["name"], json.dumps(case["spec"]), json.dumps(case["inputs"]), *found, sep="\n")
    for family, count in sorted(tried.items()):
        print(f"{family:28} {count - different[family]:5} of {count:5} equal")
    print(f"{'all':28} {tried.total() - different.total():5} of {tried.total():5} equal")
    if file is not None and lines:
        file.write_text("".join(lines))
        print(f"{len(lines)} cases that differ, made as small as they can be, in {file}")
    return 1 if lines else 0


def _what(found: list[str]) -> str:
    """What kind of difference it is: errors differ from each other, two different lists of outputs do not."""
    text = found[0].partition(":")[0] if found[0].startswith(_FIELDS) else found[0]
    return re.sub(r"[0-9]+", "", text)


def _shows(what: str, case: Case, *, oracle: KafkaStreams, other: Callable[[Case], Observed]) -> bool:
    try:
        found = _compared(case, oracle, other)[1]
    except OracleError:  # too much was left out
        return False
    return bool(found) and _what(found) == what


def _compared(case: Case, oracle: KafkaStreams, other: Callable[[Case], Observed]) -> tuple[Observed, list[str]]:
    """What Kafka Streams does, and what is different. Both work at the same time."""
    oracle.send(without_expectations(case))
    observed = other(case)
    expected = with_order(case, oracle.receive())
    return expected, compared(case, expected, observed)


def with_order(case: Case, expected: Observed) -> Observed:
    """Says where the order of records of different keys is an accident: caches, several internal topics."""
    internal = set(_INTERNAL.findall(expected.get("describe", "")))
    if case["config"].get("cache_max_bytes", 0) == 0 and len(internal) < 2:
        return expected
    # Which records of a failed step were already sent is as accidental.
    certain = {field: value for field, value in expected.items() if field != "outputs_of_failed_step"}
    return certain | {"order": "per_key"}


def compared(case: Case, expected: Observed, observed: Observed) -> list[str]:
    """What is different, in words."""
    if "defect" in observed:
        return [observed["defect"]]
    found = differences(case | {"expected": expected}, observed)
    for side in (expected, observed):
        if found and found[0].startswith("error:") and "error" in side:
            found[0] += f"\n  {side['error']['class']}: {side['error']['message']}"
    wanted, got = expected.get("describe"), observed.get("describe")
    if wanted is not None and got is not None and wanted != got:
        found.append(f"describe:\n{wanted}\n-- other:\n{got}")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
