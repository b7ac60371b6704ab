"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import deltaworks.dsl
import deltaworks.serdes
import deltaworks.topology
from deltaworks.dsl.mistakes import Handle

MODULES = [
    module.name
    for package in (deltaworks.dsl, deltaworks.serdes, deltaworks.topology)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_show_what_happens(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_handle_has_an_example() -> None:
    for handle in leaves(Handle):
        assert ">>> " in (handle.__doc__ or ""), handle


def leaves(kind: type[Handle]) -> list[type[Handle]]:
    """The classes that users meet: those without a subclass."""
    below = kind.__subclasses__()
    return [leaf for each in below for leaf in leaves(each)] if below else [kind]
