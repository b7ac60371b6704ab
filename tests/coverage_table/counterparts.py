"""What the mapping calls ours, found in the package.

`KStream.filter` is a member of a public class, `Materialized` a public class (to make one), `Materialized(caching=)`
and `KStream.to(partitioner=)` are arguments, `$ deltaworks run` is a command.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import deltaworks
import deltaworks.cli.app
from deltaworks import connect, queries, testing

_FORM = re.compile(r"(?P<owner>\w+)(?:\.(?P<member>\w+))?(?:\((?P<argument>\w+)=\))?")
_COMMAND = "$ deltaworks "
_MISSING = object()
_MODULES = (deltaworks, testing, queries, connect)
"""Those with public names."""


@dataclass(frozen=True)
class Counterpart:
    """Something of ours."""

    name: str
    owner: Any
    """A public class or function; None: a command."""
    member: str | None
    argument: str | None

    @property
    def target(self) -> Any:
        """What is called or read, as it is in the class's own dictionary."""
        if self.member is None:
            return self.owner
        return inspect.getattr_static(self.owner, self.member)

    def __str__(self) -> str:
        return self.name


def find(name: str) -> Counterpart:
    """Finds it.

    Raises:
        LookupError: there is no such thing of ours.
    """
    if name.startswith(_COMMAND):
        return _command(name)
    form = _FORM.fullmatch(name)
    if form is None:
        raise LookupError(f"not the name of something of ours: {name!r}")
    owner = _owner(form["owner"])
    if owner is _MISSING:
        raise LookupError(f"{name}: no public name '{form['owner']}'")
    found = Counterpart(name, owner, form["member"], form["argument"])
    try:
        target = found.target
    except AttributeError:
        if form["member"] not in _fields(owner):
            raise LookupError(f"{name}: {form['owner']} has no '{form['member']}'") from None
        return found
    if form["argument"] is not None and form["argument"] not in _arguments(target):
        raise LookupError(f"{name}: there is no argument '{form['argument']}'")
    return found


def _owner(name: str) -> Any:
    """What has a public name."""
    return next((getattr(module, name) for module in _MODULES if name in module.__all__), _MISSING)


def public_members() -> list[str]:
    """All that a user can call or read: every public name, and of classes every public member."""
    found = []
    for module in _MODULES:
        for name in module.__all__:
            owner = getattr(module, name)
            found.append(name)
            if isinstance(owner, type):
                found += [f"{name}.{member}" for member in _members(owner)]
    return sorted(set(found))


def covered_by(names: Iterable[str]) -> set[str]:
    """The public names and members that these stand for.

    A member stands for its class, an argument for the field that it fills, and a method that several classes have from
    one base for all of them.
    """
    names = [name for name in names if not name.startswith(_COMMAND)]
    covered = {name.partition("(")[0] for name in names} | {name.partition(".")[0].partition("(")[0] for name in names}
    covered |= {f"{name.partition('(')[0]}.{name.partition('(')[2].rstrip('=)')}" for name in names if "(" in name}
    shared = {id(_function(name)) for name in names} - {id(None)}
    return covered | {name for name in public_members() if id(_function(name)) in shared}


def difference_in_docstring(name: str) -> str | None:
    """What the docstring says after `differs:`; None: no difference, or no docstring of its own."""
    if name.startswith(_COMMAND) or "(" in name:
        return None
    counterpart = find(name)
    documented = _function(name) if counterpart.member else counterpart.owner
    said = re.search(r"differs: (.*?)(?:\n\n|\Z)", inspect.getdoc(documented) or "", re.DOTALL) if documented else None
    return None if said is None or said[1].strip() == "no." else said[1]


def _function(name: str) -> Any:
    """The method or property of this name; None: it is something else."""
    owner, _, member = name.partition("(")[0].partition(".")
    holder = _owner(owner)
    found = inspect.getattr_static(holder, member, None) if member else None
    return found if isinstance(found, property) or inspect.isfunction(found) else None


def _members(owner: type) -> set[str]:
    """Its own and those of its bases in this package."""
    ours = [base for base in owner.__mro__ if base.__module__.startswith("deltaworks")]
    names = {name for base in ours for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    return {name for name in names if not name.startswith("_")}


def _fields(owner: Any) -> tuple[str, ...]:
    bases = owner.__mro__ if isinstance(owner, type) else (owner,)
    return tuple(name for base in bases for name in vars(base).get("__annotations__", ()))


def _arguments(target: Any) -> set[str]:
    called = target.__func__ if isinstance(target, classmethod | staticmethod) else target
    return set(inspect.signature(called).parameters) - {"self", "cls"}


def _command(name: str) -> Counterpart:
    command = name.removeprefix(_COMMAND).split()[0]
    known = {
        each.name or each.callback.__name__ for each in deltaworks.cli.app.app.registered_commands if each.callback
    }
    if command not in known:
        raise LookupError(f"{name}: the commands are {', '.join(sorted(known))}")
    return Counterpart(name, None, None, None)
