from __future__ import annotations

from tooling import runtime_lock

LOCK = """\
alone==1 \\
    --hash=sha256:aa
    # via deltaworks (pyproject.toml:dev)
below==2 ; python_full_version < '3.12' \\
    --hash=sha256:bb
    # via tool
below==3 ; python_full_version >= '3.12' \\
    --hash=sha256:cc
    # via
    #   needed
    #   tool
deep==4
    # via below
needed==5
    # via
    #   deltaworks (pyproject.toml:dev)
    #   deltaworks (pyproject.toml)
tool==6
    # via alone
"""


def test_what_only_tools_of_development_require_is_left_out() -> None:
    kept = runtime_lock.of(LOCK)

    assert [line for line in kept.splitlines() if "==" in line and "#" not in line] == [
        "below==2 ; python_full_version < '3.12' \\",
        "below==3 ; python_full_version >= '3.12' \\",
        "deep==4",
        "needed==5",
    ]


def test_entries_are_kept_to_the_letter() -> None:
    everything = LOCK.replace("pyproject.toml:dev", "pyproject.toml")

    assert runtime_lock.of(everything) == everything
