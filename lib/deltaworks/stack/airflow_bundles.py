"""The DAG bundles of Airflow, as the value of AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST."""

from __future__ import annotations

import json

from deltaworks.settings import Settings

REFRESH_S = 5
"""Maximum delay until the DAG of a new file in `jobs/` is parsed."""


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
