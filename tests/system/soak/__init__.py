"""The soak: streams with all operators run for minutes or hours under random faults, and are compared with a
recomputation after each; `make soak MINUTES=N [SEED=...]`, `python -m tests.system.soak --help`.

What is fired: `kinds.py`. The streams: `jobs/`. What must come out: `models.py`.
What it cannot show: `docs/exactness.md`.
"""
