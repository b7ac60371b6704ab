"""The text of a stack trace, at a price that a stream can pay for each bad record.

Python looks up the source lines, and the place within each, again for every error. That costs many times as much as
the rest of the handling of a bad record, and the result is the same each time. So the text of a frame is kept.
"""

from __future__ import annotations

import re
import sys
import traceback
from functools import cache
from types import CodeType, TracebackType

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
_LONGEST_CHAIN = 20
_REPEATS = 3
"""Python repeats a line this often, and then prints a number."""
_KEPT = 10_000
_FILE = re.compile(r'File "([^"]+)"')

_frames: dict[tuple[CodeType, str, int], str] = {}
"""Text of a frame by code, file and instruction: the code of two files may be equal."""


class _UnusualError(Exception):
    """More than one frame after the other, and one error after the other."""


def stacktrace(error: BaseException) -> str:
    """The trace that Python prints for an error, with files named as imported: the same wherever the code lies."""
    try:
        return _chain(error)
    except _UnusualError:
        return _imported("".join(traceback.format_exception(error)))


def _chain(error: BaseException) -> str:
    texts: list[str] = []
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, BaseExceptionGroup) or len(texts) > 2 * _LONGEST_CHAIN:
            raise _UnusualError
        texts.append(_stack(each.__traceback__) + _imported("".join(traceback.format_exception_only(each))))
        if each.__cause__ is not None:
            texts.append(_CAUSE)
            each = each.__cause__
        elif each.__context__ is not None and not each.__suppress_context__:
            texts.append(_CONTEXT)
            each = each.__context__
        else:
            each = None
    return "".join(reversed(texts))


def _stack(begin: TracebackType | None) -> str:
    if begin is None:
        return ""
    texts, last, repeats = ["Traceback (most recent call last):\n"], None, 0
    each: TracebackType | None = begin
    while each is not None:
        place = (each.tb_frame.f_code, each.tb_lineno)
        repeats = repeats + 1 if place == last else 1
        if repeats > _REPEATS:
            raise _UnusualError
        texts.append(_frame(each))
        last, each = place, each.tb_next
    return "".join(texts)


def _frame(trace: TracebackType) -> str:
    code = trace.tb_frame.f_code
    key = code, code.co_filename, trace.tb_lasti
    text = _frames.get(key)
    if text is None:
        if len(_frames) >= _KEPT:
            _frames.clear()
        text = _frames[key] = _imported("".join(traceback.format_tb(trace, 1)))
    return text


def _imported(text: str) -> str:
    return _FILE.sub(lambda found: f'File "{_as_imported(found[1])}"', text)


@cache
def _as_imported(path: str) -> str:
    folders = (f"{folder.rstrip('/')}/" for folder in sys.path if folder)
    return path.removeprefix(max((folder for folder in folders if path.startswith(folder)), key=len, default=""))
