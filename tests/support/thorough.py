"""Which unit tests `make check` leaves out, and what the others cost, so that it stays quick.

A unit test is *thorough* if it takes more than `TEST_S` seconds of CPU, or its file more than `FILE_S`. Such a file is
in `FILES`, often by a pattern that new ones match, too; such a test in another file has `@pytest.mark.thorough`.
`make check` runs neither, and lists at its end what is thorough by this rule but neither marked nor in `STAY`. The list
is no failure: the first test of a process that needs Airflow pays for its import, and a busy machine makes all tests
slower.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Mapping
from fnmatch import fnmatch
from pathlib import Path

import pytest

TEST_S = 3.0
FILE_S = 6.0
"""Seconds of CPU, those of processes that tests start and wait for included."""
MARK = "thorough"
FILES = (
    # They run other processes: Airflow with a database, mypy, pip, commands of ours, servers.
    "tests/unit/airflow/test_*_runs.py",
    "tests/unit/airflow/test_batch.py",
    "tests/unit/airflow/test_child.py",
    "tests/unit/airflow/test_connector.py",
    "tests/unit/airflow/test_dags.py",
    "tests/unit/airflow/test_provider.py",
    "tests/unit/airflow/test_replay_operators.py",
    "tests/unit/airflow/test_reprocess.py",
    "tests/unit/cli/test_connect.py",
    "tests/unit/cli/test_dead_letters.py",
    "tests/unit/cli/test_documents.py",
    "tests/unit/cli/test_down.py",
    "tests/unit/cli/test_metrics.py",
    "tests/unit/cli/test_projects.py",
    "tests/unit/cli/test_sinks.py",
    "tests/unit/connect/test_planning.py",
    "tests/unit/connectors/test_resends.py",
    "tests/unit/connectors/test_supervision.py",
    "tests/unit/connectors/test_sweep.py",
    "tests/unit/metrics/test_endpoint.py",
    "tests/unit/query_server/test_serving.py",
    "tests/unit/spark/test_forking.py",
    "tests/unit/stack/test_bootstrap.py",
    "tests/unit/stack/test_runner.py",
    "tests/unit/ui/test_serving.py",
    # They put all of our code into archives, or run whole jobs.
    "tests/unit/control/test_code.py",
    "tests/unit/control/test_opening.py",
    "tests/unit/control/test_other_code.py",
    "tests/unit/control/test_project_code.py",
    "tests/unit/control/test_resends.py",
    "tests/unit/explain/test_masking.py",
    "tests/unit/jobs/test_*_check.py",
    "tests/unit/jobs/test_*_data.py",
    "tests/unit/jobs/test_*_quality.py",
    "tests/unit/jobs/test_*_recomputed.py",
    "tests/unit/jobs/test_*_recorded.py",
    # They talk to a server of S3.
    "tests/unit/*/test_*in_store.py",
    "tests/unit/test_files_*.py",
    "tests/unit/test_object_*.py",
    # They write many versions of tables, or judge them with Great Expectations.
    "tests/unit/catalogue/test_table.py",
    "tests/unit/control/test_closed_days.py",
    "tests/unit/lakehouse/publish/test_comparison.py",
    "tests/unit/lakehouse/publish/test_corrections.py",
    "tests/unit/lakehouse/publish/test_publication*.py",
    "tests/unit/lakehouse/publish/test_sink_changes.py",
    "tests/unit/lakehouse/test_archive.py",
    "tests/unit/lakehouse/test_catalog.py",
    "tests/unit/lakehouse/test_committer.py",
    "tests/unit/lakehouse/test_cuts*.py",
    "tests/unit/lakehouse/test_dead_letters.py",
    "tests/unit/lakehouse/test_foreign.py",
    "tests/unit/lakehouse/test_intents_of_tables.py",
    "tests/unit/lakehouse/test_page_index.py",
    "tests/unit/lakehouse/test_pages.py",
    "tests/unit/lakehouse/test_retention.py",
    "tests/unit/lakehouse/test_rewriting.py",
    "tests/unit/lakehouse/test_sandbox.py",
    "tests/unit/lakehouse/test_snapshot_files.py",
    "tests/unit/lakehouse/test_torn.py",
    "tests/unit/quality/test_engine.py",
    "tests/unit/quality/test_gate.py",
    "tests/unit/quality/test_invariants.py",
    "tests/unit/quality/test_parts.py",
    "tests/unit/quality/test_production.py",
    "tests/unit/quality/test_results.py",
    "tests/unit/quality/test_table_snapshots.py",
    "tests/unit/quality/test_types.py",
    "tests/unit/queries/test_any_question.py",
    # They run very many cases.
    "tests/conformance/oracle/test_variations.py",
    "tests/conformance/test_generated.py",
    "tests/conformance/test_micro_batches.py",
    "tests/unit/runtime/state/test_local_files.py",
    "tests/unit/runtime/state/test_rebuild.py",
)
STAY = frozenset(
    {
        # Each reads all of our code, and fails for changes that no other quick test would notice.
        "tests/architecture/test_clock.py::test_only_the_clock_asks_what_time_it_is",
        "tests/architecture/test_extras.py::test_every_dependency_is_imported_or_has_a_reason",
        "tests/architecture/test_imports.py::test_only_public_modules_of_airflow_are_imported",
        # It runs a test for each name of the public API: hundreds of quick ones.
        "tests/coverage_table/test_coverage_table.py",
    }
)
"""Tests and files that `make check` runs, whatever they cost: whoever changes our code wants to know this at once."""
_ROOT = Path(__file__).parents[2]


def is_thorough(file: Path) -> bool:
    """Whether all tests of a file are."""
    name = file.relative_to(_ROOT).as_posix() if file.is_relative_to(_ROOT) else ""
    return any(fnmatch(name, pattern) for pattern in FILES)


class Costs:
    """A plugin of pytest: marks the tests of `FILES`, and tells what should be marked."""

    def __init__(self, config: pytest.Config) -> None:
        self._quick = f"not {MARK}" in config.option.markexpr
        self._before = 0.0
        self._tests: defaultdict[str, float] = defaultdict(float)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """What is not run need not be imported."""
        return True if self._quick and is_thorough(collection_path) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if is_thorough(item.path):
                item.add_marker(MARK)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._before = _cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = _cpu_s()
        report.user_properties.append(("cpu_s", now - self._before))
        self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In the process that gets the reports of all; that of a process that has died has no costs."""
        costs = [value for name, value in report.user_properties if name == "cpu_s" and isinstance(value, float)]
        self._tests[report.nodeid] += sum(costs)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._quick:
            return
        if found := unmarked(self._tests):
            terminalreporter.section(f"should be {MARK}: see tests/support/thorough.py", sep="-")
            for line in found:
                terminalreporter.line(line)
        terminalreporter.line(f"CPU time of tests: {sum(self._tests.values()):.0f} s")


def unmarked(tests: Mapping[str, float]) -> list[str]:
    """What takes too long for a quick test and is not to stay, a line each, the longest first.

    Args:
        tests: id -> seconds of CPU.
    """
    files: defaultdict[str, float] = defaultdict(float)
    for name, cpu_s in tests.items():
        if cpu_s <= TEST_S:
            files[name.partition("::")[0]] += cpu_s
    found = [(cpu_s, name) for name, cpu_s in tests.items() if cpu_s > TEST_S and name not in STAY]
    found += [
        (cpu_s, f"{name}, without tests above") for name, cpu_s in files.items() if cpu_s > FILE_S and name not in STAY
    ]
    return [f"{cpu_s:5.1f} s  {name}" for cpu_s, name in sorted(found, reverse=True)]


def _cpu_s() -> float:
    """Of this process, and of those that it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system
