"""The import of Great Expectations.

It brings SciPy, Altair and SQLAlchemy with it and takes about five seconds, so it happens when something is validated,
never when a module of ours is imported. It also looks whether Spark Connect is there, and without all of its packages
PySpark takes `python -c` (and whatever else has no main file) for its own doctests and ends the process, with exit
code 0: a check that was never made, and looks well.
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
    # Where somebody logs at INFO (Airflow does), it would tell of everything that it registers and looks up.
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    try:
        import great_expectations  # noqa: F401
    except SystemExit as end:
        raise ConfigurationError(
            "Great Expectations cannot be imported in a Python process without a main file: PySpark ends the process.",
            hint="run it from a file or as a module (python -m), not with python -c or from standard input",
        ) from end


def dataframes() -> BatchDefinition[None]:
    """What makes batches of data frames; in memory only: no files, no progress bars, nothing is sent anywhere."""
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
