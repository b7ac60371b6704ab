"""deltaworks: Kafka Streams topologies in typed Python, run by Spark, kept in Delta Lake.

Where to begin, each with an example in its `help`:

- `StreamsBuilder` reads topics and builds; it makes `KStream`, `KTable` and `GlobalKTable`, which have the operators.
- `group_by_key` and `group_by` lead to `KGroupedStream` and `KGroupedTable`, `windowed_by` to windows of time
  (`TimeWindows`, `SlidingWindows`, `UnlimitedWindows`) and to sessions (`SessionWindows`), `cogroup` to aggregates of
  several streams; `JoinWindows` is for joins of streams, `Suppressed` for final results.
- `Processor`, `FixedKeyProcessor`, `ValueTransformer` are operators that you write, `Stores` makes their stores,
  `Topology` connects them node by node.
- Types are given as types (`str`, `Order`) or as serdes (`Long()`, `Json(Order)`).
- `Pipeline` is a topology with a name and the way it runs; `deltaworks.testing.TopologyTestDriver` runs it in a test.

Importing this package loads no engine: neither Spark nor Delta Lake nor a Kafka client; and the operators only when
one of the names is asked for, because most commands need none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltaworks.public import *  # noqa: F403
    from deltaworks.public import __all__ as __all__
else:

    def __getattr__(name: str) -> Any:
        if not name[:1].isupper() and name != "__all__":  # a module, perhaps: Python asks here first
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        public = import_module("deltaworks.public")
        if name != "__all__" and name not in public.__all__:
            raise import_module("deltaworks.dsl.kafka_names").missing(name)
        found = globals()[name] = getattr(public, name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
