"""The reader of class files, on classes that every installation has: those of the Ivy that PySpark carries."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pytest

from tests.coverage_table.class_files import PUBLIC, JavaClass, read_class


def ivy_class(name: str) -> JavaClass:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    (jar,) = Path(spec.origin).parent.glob("jars/ivy-*.jar")
    with zipfile.ZipFile(jar) as content:
        return read_class(content.read(f"org/apache/ivy/{name}.class"))


def test_overloads_are_read_with_their_access() -> None:
    ivy = ivy_class("Ivy")

    assert ivy.access & PUBLIC
    assert [method.access & PUBLIC for method in ivy.methods if method.name == "configure"] == [PUBLIC, PUBLIC]
    assert [method.access & PUBLIC for method in ivy.methods if method.name == "new"] == [PUBLIC]


def test_the_deprecated_mark_is_that_of_an_overload() -> None:
    assert [method.deprecated for method in ivy_class("Ivy").methods if method.name == "retrieve"] == [True, False]


def test_a_nested_class_has_the_access_that_its_outer_class_says() -> None:
    assert not ivy_class("ant/IvyBuildNumber$Range").access & PUBLIC


def test_what_is_no_class_is_refused() -> None:
    with pytest.raises(ValueError, match="not a class file"):
        read_class(b"PK\3\4" + bytes(6))
