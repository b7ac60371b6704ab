"""Where Airflow finds DAGs, as the value of AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST."""

from __future__ import annotations

import json

from deltaworks.settings import Settings

REFRESH_S = 5
"""A new file in `jobs/` has its DAG after at most this long, and the time to parse it."""


def bundle_config(settings: Settings) -> str:
    """Two bundles: one DAG per pipeline (`deltaworks.airflow.bundle`), and the files in `dags/` of the project."""
    dags = {"path": str(settings.project / "dags"), "refresh_interval": REFRESH_S}
    return json.dumps(
        [
            {
                "name": "pipelines",
                "classpath": "deltaworks.airflow.bundle.PipelineBundle",
                "kwargs": {"refresh_interval": REFRESH_S},
            },
            {"name": "dags", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": dags},
        ]
    )
