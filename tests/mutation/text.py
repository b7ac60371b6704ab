"""A mutation of text: a place in a function, and what is written there in its stead."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from dataclasses import dataclass
from types import FunctionType

from tests.mutation.mutation import Patch


@dataclass(frozen=True)
class TextMutation:
    """A function that is no longer what it was."""

    function: object
    right: str
    wrong: str

    def apply(self, patch: Patch) -> None:
        """Gives the function other code, so that everybody who has it already gets the bug too."""
        function = self.function
        assert isinstance(function, FunctionType)
        text = textwrap.dedent(inspect.getsource(function))
        assert text.count(self.right) == 1, f"{function.__qualname__} has changed: rewrite its mutation"
        compiled = compile(
            text.replace(self.right, self.wrong),
            f"<bug in {function.__qualname__}>",
            "exec",
            __future__.annotations.compiler_flag,
        )
        made: dict[str, FunctionType] = {}
        exec(compiled, function.__globals__, made)
        patch(function, "__code__", made[function.__name__].__code__)
