from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks import StreamsBuilder
from deltaworks.lakehouse.schema import plan_schemas

README = Path(__file__).parents[2] / "README.md"


def test_the_pipeline_in_the_readme_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.S)
    assert code is not None
    script = tmp_path / "words.py"
    script.write_text(code[1])
    said = re.search(r"# (\{.*\})", code[1])
    assert said is not None

    ran = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(README.parent / "lib")},
    )

    assert ran.stdout.strip() == said[1]


def test_the_example_of_tables_has_the_columns_and_comments_that_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = re.search(r"```python\n(.*?)```", (README.parent / "docs" / "tables" / "columns.md").read_text(), re.S)
    assert code is not None
    (tmp_path / "example_of_tables.py").write_text(code[1])
    monkeypatch.syspath_prepend(tmp_path)
    builder = StreamsBuilder()
    importlib.import_module("example_of_tables").topology(builder)

    orders, revenue = plan_schemas(builder.build().tables, None)

    assert orders.arrow.names[:2] == ["user_id", "amount"]
    assert (orders.comments["user_id"], orders.comments["amount"]) == ("The user who ordered.", "Price in euros")
    assert [*revenue.key_names, *(column.name for column in revenue.value)] == ["user_id", "revenue"]
    assert (revenue.comments["revenue"], revenue.description) == (
        "Sum of the orders, in euros",
        "Revenue per user and five minutes",
    )


def test_files_that_the_readme_names_exist() -> None:
    text = README.read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    paths = re.findall(r"`((?:lib|jobs|tests|infra)/[\w/.]*)`", text)

    assert [path for path in (*links, *paths) if not (README.parent / path).exists()] == []


def test_the_readme_is_short() -> None:
    assert len(README.read_text().split()) <= 900
