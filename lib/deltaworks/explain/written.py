"""Writes a case as a test that pytest runs: a file with the test, and beside it the records and the row as JSON."""

from __future__ import annotations

from pathlib import Path

from deltaworks.errors import ConfigurationError
from deltaworks.explain.explaining import Explanation
from deltaworks.files import replace_file

_TEST = '''\
"""{what}

Written by `deltaworks explain {table}`; the records are in {data}.{notes}
"""

from __future__ import annotations

from pathlib import Path

from deltaworks.testing.cases import RecordedCase
from jobs.{pipeline} import pipeline

CASE = RecordedCase.load(Path(__file__).with_suffix(".json"))


def test_the_records_give_the_row() -> None:
    assert CASE.found(pipeline) == CASE.row
'''


def write_test(explained: Explanation, file: Path) -> list[Path]:
    """Writes the test and its data; returns both files.

    Args:
        explained: what the test repeats.
        file: `test_*.py`; the data is `test_*.json` beside it.

    Raises:
        ConfigurationError: pytest would not find the file, it exists already, or the case does not give the row.
    """
    data = file.with_suffix(".json")
    if file.suffix != ".py" or not file.stem.startswith("test_") or not file.stem.isidentifier():
        raise ConfigurationError(
            f"pytest finds no test in {file.name}.", hint=f"--write-test {file.parent / ('test_' + explained.table)}.py"
        )
    if existing := [path for path in (file, data) if path.exists()]:
        raise ConfigurationError(f"{existing[0]} exists already.", hint="choose another name, or remove it")
    if not file.parent.is_dir():
        raise ConfigurationError(f"There is no folder {file.parent}.", hint="make it, or choose another")
    if explained.found is None or not explained.reproduced:
        raise ConfigurationError(
            "The case does not give the row, so a test of it would fail; no test was written.",
            hint="the explanation says what differs",
        )
    replace_file(data, explained.case.encoded())
    try:
        replace_file(file, _text(explained, data.name).encode())
    except BaseException:
        data.unlink(missing_ok=True)
        raise
    return [file, data]


def _text(explained: Explanation, data: str) -> str:
    count = len(explained.inputs)
    what = f"A row of {explained.table} comes from {count} record{'s' * (count != 1)}."
    notes = ""
    if explained.masked:
        notes += "\nSecret fields are replaced."
    if explained.masking_changes:
        notes += f"\nBecause of that, the row differs from the table in: {', '.join(explained.masking_changes)}."
    return _TEST.format(what=what, table=explained.table, data=data, notes=notes, pipeline=explained.pipeline)
