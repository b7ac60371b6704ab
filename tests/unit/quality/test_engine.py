from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIB = Path(__file__).parents[3] / "lib"
VALIDATE = "from deltaworks.quality import validate; print(validate({}, {}))"


def test_a_process_that_pyspark_would_end_quietly_ends_with_an_error() -> None:
    """`python -c "import great_expectations"` has exit code 0 and imports nothing."""
    ran = subprocess.run([sys.executable, "-c", VALIDATE], capture_output=True, text=True, check=False, cwd=LIB)

    assert (ran.returncode, ran.stdout.strip()) in {(1, ""), (0, "[]")}
    assert ran.returncode == 0 or "cannot be imported in a Python process without a main file" in ran.stderr


def test_a_file_can_validate_and_great_expectations_says_nothing_where_somebody_logs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    setup = f"import logging, sys\nlogging.basicConfig(level=logging.INFO)\nsys.path.insert(0, {str(LIB)!r})"
    script.write_text(f"{setup}\n{VALIDATE}\n")

    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, "[]", "")
