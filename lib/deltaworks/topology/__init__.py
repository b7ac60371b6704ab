"""The immutable plan, and the value objects that users hand to the DSL.

- The plan: `nodes/` (what there is), `split.py` and `stages.py` (which nodes run together), `partitions.py`,
  `checks.py`, `fingerprint.py`, `describe.py` and `mermaid.py` (to look at it).
- Value objects: `windows.py`, `join_windows.py`, `suppressed.py`, `error_handlers.py`; for all: `durations.py`.
- What users write: `processors.py` with `state_stores.py`, `timestamps.py`, `routing.py`.
"""
