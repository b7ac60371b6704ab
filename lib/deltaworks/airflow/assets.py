"""The assets of Delta tables and of checks, for which other DAGs may wait.

| asset | updated |
|---|---|
| a table of a pipeline | by a replay that has published it |
| a table of a batch job | by each run, which names the day in its event |
| the checks of a pipeline | when all of them have passed |

A stream updates no asset: it commits every few seconds, and a run per commit would be of no use.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow.sdk import Asset

from deltaworks.airflow.options import PipelineOptions
from deltaworks.errors import ConfigurationError

URI, CHECKED = "x-deltaworks://tables/{table}", "x-deltaworks://checked/{pipeline}"
"""By name, so that it does not depend on the home; what schemes with `x-` mean, Airflow leaves to others."""


def table_asset(table: str, uri: str = URI) -> Asset:
    """The asset of a Delta table.

    Args:
        table: name of the table.
        uri: its URI, with `{table}`; the option `asset_uri` of the pipeline's DAGs.
    """
    if "{table}" not in uri:
        raise ConfigurationError(
            f"The URI of assets, {uri!r}, does not depend on the table.", hint="such as 's3://lake/{table}'"
        )
    return Asset(uri=uri.replace("{table}", table))


def checked_asset(pipeline: str) -> Asset:
    """The asset of a pipeline's checks."""
    return Asset(uri=CHECKED.format(pipeline=pipeline))


def assets_of_checks(pipeline: str, options: PipelineOptions) -> list[Asset]:
    """The asset of a pipeline's checks; none if the options say that there are no assets."""
    return [] if options.get("asset_uri", URI) is None else [checked_asset(pipeline)]


def assets_of(tables: Iterable[str], options: PipelineOptions) -> list[Asset]:
    """The assets of some tables; none if the options say so."""
    uri = options.get("asset_uri", URI)
    return [] if uri is None else [table_asset(table, uri) for table in tables]
