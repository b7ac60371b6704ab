"""`make check-analysts`, or `python -u -m tests.system.analysts [PART]... [--seconds 600] [--month]`.

The last line is counts; exit code 1: something differs.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.system.analysts import erased, explained, month, old_versions, readers, streaming
from tests.system.analysts.findings import Findings

PARTS: dict[str, Callable[[Path, Findings, float], None]] = {
    "readers": streaming.check,
    "retention": old_versions.check,
    "explain": explained.check,
    "erase": erased.check,
    "month": month.of(month.DAYS, month.SPARSE),
}
"""Each may run alone; another one is one more line. It gets an empty folder and a budget in seconds, which it may
ignore."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long readers ask a stream; default: 600")
    parser.add_argument("--month", action="store_true", help="a commit in each second of the month: hours")
    parser.add_argument("--days", type=int, default=month.DAYS, help=f"of this month; default: {month.DAYS}")
    parser.add_argument("--readers", help="of all readers, only these, separated by commas")
    arguments = parser.parse_args()
    PARTS["month"] = month.of(arguments.days, None if arguments.month else month.SPARSE)
    chosen = arguments.parts or list(PARTS)
    if unknown := set(chosen) - PARTS.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if arguments.readers is not None:
        wanted = arguments.readers.split(",")
        if unknown := set(wanted) - readers.READERS.keys():
            parser.error(f"no reader {', '.join(sorted(unknown))}; there are {', '.join(readers.READERS)}")
        for name in readers.READERS.keys() - set(wanted):
            del readers.READERS[name]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # as Ctrl-C: nothing is left behind
    return 1 if run(chosen, arguments.seconds) else 0


def run(chosen: list[str], seconds: float) -> list[str]:
    """Runs the parts one after the other; what was wrong."""
    summary, wrong, counts = [], list[str](), Counter[str]()
    for part in chosen:
        findings, begun = Findings(part), time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"deltaworks-{part}-") as folder:
            try:
                PARTS[part](Path(folder), findings, seconds)
            except Exception as error:
                findings.holds(f"it ended with {type(error).__name__}: {error}", False)
        summary.append(findings.summary(time.monotonic() - begun))
        wrong += [f"{part}: {line}" for line in findings.wrong]
        counts.update({"checks": findings.checks, "rows": findings.rows, **findings.counts})
    print(f"\n{'part':9} {'checks':>6} {'rows compared':>13} {'seconds':>8}")
    print("\n".join([*summary, *wrong]))
    print(", ".join(f"{name} {count:,}" for name, count in [*counts.items(), ("different", len(wrong))]))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
