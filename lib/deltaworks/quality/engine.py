"""The import of Great Expectations.

The import pulls in SciPy, Altair and SQLAlchemy and takes about five seconds. So it happens at the first validation,
never when one of our modules is imported. It also probes for Spark Connect. If some packages of that are missing,
PySpark mistakes a process without a main file (such as `python -c`) for its own doctests and ends it with exit code 0,
so a check that never ran would look like a pass.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from deltaworks.errors import ConfigurationError

if TYPE_CHECKING:
    from great_expectations.core.batch_definition import BatchDefinition


def load() -> None:
    """Imports Great Expectations, or raises.

    Raises:
        ConfigurationError: it cannot be imported here.
    """
    # At level INFO (Airflow's), it would log everything that it registers and looks up.
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    try:
        import great_expectations  # noqa: F401
    except SystemExit as end:
        raise ConfigurationError(
            "Great Expectations cannot be imported in a Python process without a main file: PySpark ends the process.",
            hint="run it from a file or as a module (python -m), not with python -c or from standard input",
        ) from end


def dataframes() -> BatchDefinition[None]:
    """Makes batches of data frames in memory: without files, progress bars or telemetry."""
    load()
    import great_expectations
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(),
        progress_bars=ProgressBarsConfig(globally=False),
        analytics_enabled=False,
    )
    context = great_expectations.get_context(mode="ephemeral", project_config=config)
    asset = context.data_sources.add_pandas("tables").add_dataframe_asset("table")
    return asset.add_batch_definition_whole_dataframe("all")
