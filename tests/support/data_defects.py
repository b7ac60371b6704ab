"""A defect: statements that damage Delta tables, and the way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
from deltalake import DeltaTable, write_deltalake


@dataclass(frozen=True)
class Defect:
    """What somebody could do wrong."""

    name: str
    damage: tuple[tuple[str, str], ...]
    """Tables and statements, one after the other. `{}` stands for the table, every table has its name, and
    `original_<name>` is a table as it was."""

    @property
    def tables(self) -> list[str]:
        """Those that are damaged."""
        return list(dict.fromkeys(table for table, _ in self.damage))


def defect(name: str, *damage: str) -> Defect:
    """A defect of tables and statements in turn."""
    return Defect(name, tuple(zip(damage[::2], damage[1::2], strict=True)))


@contextmanager
def planted(root: Path, names: Sequence[str], planted: Defect) -> Iterator[None]:
    """The tables below `root` have the defect, in a version of their own that is taken back."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in names:
            connection.register(f"original_{name}", DeltaTable(root / name).to_pyarrow_dataset())
            kind = "TABLE" if name in planted.tables else "VIEW"
            connection.execute(f'CREATE {kind} "{name}" AS SELECT * FROM "original_{name}"')
        before = {name: connection.table(name).to_arrow_table() for name in planted.tables}
        for name, statement in planted.damage:
            connection.execute(statement.replace("{}", f'"{name}"'))
        after = {name: connection.table(name).to_arrow_table() for name in planted.tables}
    for name in planted.tables:
        assert not after[name].equals(before[name]), f"{planted.name}: nothing changes in {name}"
    versions = {name: DeltaTable(root / name).version() for name in planted.tables}
    try:
        for name, rows in after.items():
            write_deltalake(root / name, rows, mode="overwrite")
        yield
    finally:
        for name, version in versions.items():
            DeltaTable(root / name).restore(version)
