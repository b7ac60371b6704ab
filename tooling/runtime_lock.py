"""The lock of what runs: `constraints.txt` without the tools of development, `python -m tooling.runtime_lock`.

It writes `infra/runtime-constraints.txt`, which is in the wheel, so that an image can be built without a clone. Under
each package, uv notes which others require it; a package belongs to the lock if the project requires it, directly or
not.
"""

from __future__ import annotations

import re
from pathlib import Path

LOCK = "infra/runtime-constraints.txt"
_PROJECT = "deltaworks (pyproject.toml)"
_VIA = re.compile(r"^ +# (?:via |  )(\S.*)$", re.MULTILINE)


def of(text: str) -> str:
    """The entries of a lock that the project requires."""
    entries = [(entry.partition("==")[0], entry) for entry in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)]
    required_by: dict[str, set[str]] = {}
    for name, entry in entries:  # several, if it has other versions for other Pythons
        required_by.setdefault(name, set()).update(_VIA.findall(entry))
    runtime: set[str] = set()
    found = {_PROJECT}
    while found:
        found = {name for name, others in required_by.items() if others & found} - runtime
        runtime |= found
    return "".join(entry for name, entry in entries if name in runtime)


def main() -> None:
    """Writes the lock of this clone."""
    root = Path(__file__).parents[1]
    (root / LOCK).write_text(of((root / "constraints.txt").read_text()))


if __name__ == "__main__":
    main()
