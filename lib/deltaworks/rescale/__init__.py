"""A stream goes on with more tasks: its state is spread by key, without a replay.

- `keys`: how producers place keys, and whether the records that are not read yet are where the new tasks expect them
- `rescaling`: the steps, from a stopped stream to one that goes on

`topology.rescaling` says which keys decide, `runtime.state.splitting` spreads stores, `lakehouse.moved_pages` the open
windows of tables.
"""
