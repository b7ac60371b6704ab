"""deltaworks: Kafka Streams topologies in typed Python, run on Spark, stored in Delta Lake.

Where to begin; the `help` of each name has an example:

- `StreamsBuilder` reads topics and makes `KStream`, `KTable` and `GlobalKTable`, which have the operators.
- `group_by_key` and `group_by` return `KGroupedStream` and `KGroupedTable`; `windowed_by` adds time windows
  (`TimeWindows`, `SlidingWindows`, `UnlimitedWindows`, your own `Windows`) or sessions (`SessionWindows`); `cogroup`
  aggregates several streams; `JoinWindows` is for stream-stream joins, `Suppressed` for final results.
- `Processor`, `FixedKeyProcessor` and `ValueTransformer` are operators that you write. `Stores` makes their stores, and
  `Topology` connects them node by node.
- Types are given as Python types (`str`, `Order`) or as serdes (`Long()`, `Json(Order)`).
- `Pipeline` is a topology with a name and settings; `deltaworks.testing.TopologyTestDriver` runs it in a test.

Importing this package loads no engine: no Spark, no Delta Lake and no Kafka client. It loads the operators only when
one of their names is first used, because most commands need none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltaworks.public import *  # noqa: F403
    from deltaworks.public import __all__ as __all__
else:

    def __getattr__(name: str) -> Any:
        if not name[:1].isupper() and name != "__all__":  # perhaps a module: Python asks here first
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        public = import_module("deltaworks.public")
        if name != "__all__" and name not in public.__all__:
            raise import_module("deltaworks.dsl.kafka_names").missing(name)
        found = globals()[name] = getattr(public, name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
