"""The rules for names that become files or folders.

Names and ids come from outside: command arguments, forms and XComs of Airflow, files that somebody may have edited.
Each is checked where it becomes part of a path, so that none leads out of its folder. Only this module has the rules.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from deltaworks.errors import ConfigurationError

_SHOWN = 100


@dataclass(frozen=True)
class Rule:
    """The syntax of one kind of names; no rule allows `.`, `..` or a separator."""

    what: str
    """An article and a noun, to follow "cannot be "."""
    pattern: re.Pattern[str]
    valid: str
    """The rule in words."""

    def allows(self, name: str) -> bool:
        """Whether the rule allows a name."""
        return self.pattern.fullmatch(name) is not None

    def checked(self, name: str, where: Path | None = None) -> str:
        """Returns the name if the rule allows it.

        Args:
            name: a name from outside.
            where: the folder in which it would name something.

        Raises:
            ConfigurationError: the rule does not allow it; nothing was read, written or deleted.
        """
        if self.allows(name):
            return name
        shown = repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}...")
        there = "" if where is None else f" in {where}"
        raise ConfigurationError(f"{shown} cannot be {self.what}{there}.", hint=f"use {self.valid}")


PIPELINE = Rule("the name of a pipeline", re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,99}"), "letters, digits, '_' and '-'")
TOPIC = Rule(
    "the name of a topic",
    re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}"),
    "letters, digits, '.', '_' and '-', at most 249",
)
STORE = Rule(
    "the name of a store",
    re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9.-][a-zA-Z0-9._-]{0,199}"),
    "letters, digits, '.', '_' and '-', and no '_' at the beginning",
)
TABLE = Rule(
    "the name of a Delta table",
    re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,127}"),
    "letters, digits and '_', with a letter first",
)
OURS = ("catalog", "quality_results", "quality_failures")
"""Tables that deltaworks writes beside those of pipelines and batch jobs, none of which can be called so."""
OWN_TABLE = Rule(
    TABLE.what,
    re.compile(rf"(?!(?i:{'|'.join(OURS)})$){TABLE.pattern.pattern}"),
    f"{TABLE.valid}; {', '.join(OURS)} are tables of deltaworks",
)
COLUMN = Rule(
    "the name of a column",
    re.compile(r"[^\W\d]\w{0,127}"),
    "letters, digits and '_', with a letter first",
)
MODULE = Rule(
    "the name of a file in jobs/", re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_-]{0,99}"), "letters, digits, '_' and '-'"
)
CONNECTOR = Rule("the name of a connector", MODULE.pattern, f"{MODULE.valid}, as its file in jobs/connectors is named")
RUN = Rule(
    "the id of a replay, or of a checkpoint",
    re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}"),
    "letters, digits, '.', '_' and '-', as `deltaworks replays` shows them",
)
PIN = Rule(
    "the name of a pin",
    re.compile(r"[a-zA-Z][a-zA-Z0-9._-]{0,99}"),
    "letters, digits, '.', '_' and '-', and a letter at the beginning",
)
FILE = Rule(
    "the name of a file",
    re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,239}"),
    "letters, digits, '.', '_' and '-'",
)


def hint_of(name: str, known: Collection[str], what: str) -> str:
    """The hint for a name that nothing has: near ones, or else all of them after `what` they are."""
    if near := difflib.get_close_matches(name, known, n=3):
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"{what}: {', '.join(sorted(known)) or 'none yet'}"
