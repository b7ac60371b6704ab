"""Shows the examples of docstrings, which begin with `>>>`, as code in the documentation site."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts a fence around each example, up to the next blank line."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each object that is documented."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with its examples as fenced code."""
    return _EXAMPLE.sub(lambda example: f"{example[1]}```pycon\n{example[0]}\n{example[1]}```", text)
