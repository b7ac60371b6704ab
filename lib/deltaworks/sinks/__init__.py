"""Writers for systems without a connector: a search index, tables of a database, files.

Each is a `SinkWriter` (`topology/sinks.py`) for one of the settings in `topology/external.py`; `runtime/sinks.py` calls
it as it calls an author's own.
"""

from __future__ import annotations

from typing import Any

from deltaworks.topology.external import FileFolder, JdbcTable, SearchIndex
from deltaworks.topology.sinks import SinkTask, SinkWriter


def writer(sink: SearchIndex | JdbcTable | FileFolder, task: SinkTask) -> SinkWriter[Any, Any]:
    """A writer for a task. Only the client of its own system is imported.

    Raises:
        ConfigurationError: a package is missing, or a setting cannot be followed here.
        SinkError: the system does not answer, or what is there does not fit.
    """
    match sink:
        case SearchIndex():
            from deltaworks.sinks.search import SearchWriter

            return SearchWriter(sink, task)
        case JdbcTable():
            from deltaworks.sinks.jdbc import JdbcWriter

            return JdbcWriter(sink, task)
        case FileFolder():
            from deltaworks.sinks.file_folder import FolderWriter

            return FolderWriter(sink, task)
