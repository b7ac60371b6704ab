"""The DSL: handles over a topology under construction. No engine, no I/O.

- Begin: `builder.py`; low level: `topology.py`; what users import it all with: `pipeline.py`.
- Handles, a file each: `kstream.py` (its joins: `kstream_joins.py`), `ktable.py`, `global_ktable.py`, `grouped.py`,
  `grouped_table.py`, `windowed.py`, `cogrouped.py`, `branched.py`.
- What their methods connect: `joins.py` (stream-table, stream-global table), `stream_joins.py`, `table_joins.py`,
  `foreign_keys.py`, `table_views.py`, `materialize.py` (aggregates and tables), `suppress.py`, `processing.py`,
  `exchanges.py` (repartitions).
- Stores: `materialized.py` is what users say about a store, and makes the specification; `state_stores.py` is
  `Stores`, for processors.
- What all share: `graph.py` (nodes, names, problems), `point.py` (an output and its types), `mistakes.py` (what users
  get wrong), `kafka_names.py` (what they look for in vain).
- Rules of Kafka Streams over several nodes: `table_readers.py`, `optimize.py`.

What a finished topology looks like is `deltaworks.topology`, what it does `deltaworks.kernel`.
"""
