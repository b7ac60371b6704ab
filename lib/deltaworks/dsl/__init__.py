"""The DSL: handles over a topology under construction. No engine, no I/O.

- Entry points: `builder.py`, `topology.py` (the low level), `pipeline.py` (a named topology and how it runs).
- Handles, one file each: `kstream.py` (its joins: `kstream_joins.py`), `ktable.py`, `global_ktable.py`, `grouped.py`,
  `grouped_table.py`, `windowed.py`, `cogrouped.py`, `branched.py`.
- Nodes that their methods connect: `joins.py` (stream-table, stream-global table), `stream_joins.py`, `table_joins.py`,
  `foreign_keys.py`, `table_views.py`, `materialize.py` (aggregates and tables), `suppress.py`, `processing.py`,
  `exchanges.py` (repartitions).
- Stores: `materialized.py` has what users say about a store and makes its specification; `state_stores.py` has
  `Stores`, for processors.
  - Shared by all: `graph.py` (nodes, names, problems), `point.py` (an output and its types), `mistakes.py` (checks of
    the user's calls), `kafka_names.py` (Kafka Streams' names that do not exist here).
- Rules of Kafka Streams over several nodes: `table_readers.py`, `optimize.py`.

`deltaworks.topology` says what a finished topology looks like, `deltaworks.kernel` what it does.
"""
