"""Reads the stores of a running stream, as of the last committed batch: Kafka Streams' interactive queries.

```py
with deltaworks.queries.open("orders") as stream:
    found = stream.store("users").get("u-1")
    print(found.value, found.as_of.batch)
```

`stream.py` says which batch an answer is of; `places.py` which tasks have a key; `key_value.py`, `windows.py`,
`sessions.py` and `versioned.py` are the kinds of stores, `answers.py` what they give, `questions.py` the same questions
as values, `kinds.py` their table. How a task's store is read beside the task that writes it is in
`runtime.state.task_reader`. Nothing here prints.
"""

from deltaworks.queries.answers import (
    AsOf,
    Change,
    Changes,
    Entry,
    Found,
    KeyMetadata,
    Page,
    Session,
    SessionChange,
    Several,
    StoreMetadata,
    StoreStats,
    Version,
    Window,
    WindowChange,
)
from deltaworks.queries.key_value import KeyValues
from deltaworks.queries.kinds import Stream
from deltaworks.queries.kinds import open_stream as open
from deltaworks.queries.questions import KeyQuery, RangeQuery, VersionedKeyQuery, WindowKeyQuery, WindowRangeQuery
from deltaworks.queries.sessions import SessionValues
from deltaworks.queries.versioned import VersionedValues
from deltaworks.queries.windows import WindowedValues

__all__ = [
    "AsOf",
    "Change",
    "Changes",
    "Entry",
    "Found",
    "KeyMetadata",
    "KeyQuery",
    "KeyValues",
    "Page",
    "RangeQuery",
    "Session",
    "SessionChange",
    "SessionValues",
    "Several",
    "StoreMetadata",
    "StoreStats",
    "Stream",
    "Version",
    "VersionedKeyQuery",
    "VersionedValues",
    "Window",
    "WindowChange",
    "WindowKeyQuery",
    "WindowRangeQuery",
    "WindowedValues",
    "open",
]
