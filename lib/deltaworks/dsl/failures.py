"""Errors of any kind in an author's code, as a problem with the author's line and what to write instead."""

from __future__ import annotations

import builtins
import difflib
import inspect
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from deltaworks.dsl.graph import PACKAGE, line_of
from deltaworks.dsl.mistakes import Handle, handles, problem_of
from deltaworks.errors import DeltaworksError, Problem, TopologyError
from deltaworks.topology.java_names import advice

_OTHERS = tuple({PACKAGE, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")), "<"})
_CALL = re.compile(r"^(?P<owner>\w+)\.(?P<name>\w+)\(\) (?P<what>got an unexpected keyword argument|missing|takes)")
_KEYWORD = re.compile(r"unexpected keyword argument '(\w+)'")


@contextmanager
def reported(name: str, before: Sequence[Problem] = ()) -> Iterator[None]:
    """Turns whatever an author's code raises into a `TopologyError`.

    Args:
        name: name of the topology.
        before: problems that were found earlier, as they are when the code fails.
    """
    try:
        yield
    except DeltaworksError:
        raise
    except Exception as error:
        raise TopologyError(name, [*dict.fromkeys(before), problem(error)]) from error


def problem(error: Exception) -> Problem:
    """The failure as a problem: with the line of the author's and what may have been meant."""
    where = authors_line(error)
    if told := problem_of(error):
        return Problem(told.what, where, told.hint)
    hint = advice(error) or _similar(error)
    if isinstance(error, TypeError):
        hint = _parameters(str(error)) or hint
    return Problem(f"{_text(error).rstrip('.')}.", where, hint)


def authors_line(error: BaseException) -> str | None:
    """The last line of the author's own code that a traceback leads through, such as `jobs/orders.py:41`."""
    if isinstance(error, SyntaxError) and error.filename:
        return str(line_of(error.filename, error.lineno or 1))
    lines, trace = list[str](), error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OTHERS):
            lines.append(_line(trace))
        trace = trace.tb_next
    return lines[-1] if lines else None


def _line(trace: TracebackType) -> str:
    return str(line_of(trace.tb_frame.f_code.co_filename, trace.tb_lineno))


def _text(error: Exception) -> str:
    """The last line that Python prints for an error."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    if isinstance(error, KeyError) and error.args:
        return f"KeyError: {error.args[0]}"
    return "".join(traceback.TracebackException.from_exception(error).format_exception_only()).partition("\n")[0]


def _similar(error: Exception) -> str | None:
    """The suggestion that Python prints for a misspelled name; only newer versions can be asked for it."""
    known: Iterable[str] = ()
    name: str | None = getattr(error, "name", None)
    if isinstance(error, NameError):
        frame = [each for each, _ in traceback.walk_tb(error.__traceback__)][-1]
        known = {*frame.f_locals, *frame.f_globals, *vars(builtins)}
    elif isinstance(error, AttributeError):
        known = dir(error.obj)
    near = difflib.get_close_matches(name, known, n=1) if name else []
    return f"Did you mean: '{near[0]}'?" if near else None


def _parameters(text: str) -> str | None:
    """How a method of a handle is called, for a call with wrong arguments."""
    call = _CALL.match(text)
    kind = handles(Handle).get(call["owner"]) if call else None
    if call is None or kind is None or not hasattr(kind, call["name"]):
        return None
    signature = inspect.signature(getattr(kind, call["name"]))
    names = list(signature.parameters)[1:]
    if keyword := _KEYWORD.search(text):
        near = difflib.get_close_matches(keyword[1], names, n=1)
        return f"{near[0]}=..." if near else f"{call['name']} takes {', '.join(names)}"
    needed = (each for each in list(signature.parameters.values())[1:] if each.default is each.empty)
    return f"{call['name']}({', '.join(map(_argument, needed))})"


def _argument(parameter: inspect.Parameter) -> str:
    return f"{parameter.name}=..." if parameter.kind is parameter.KEYWORD_ONLY else parameter.name
