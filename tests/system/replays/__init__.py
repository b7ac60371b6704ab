"""Replays on the whole stack while records arrive: `make check-replay`, or some parts of it.

Every part says line by line what it compared; `findings` counts, `project` has what users have: a project, the command
line, streams. `payments` is the pipeline that is broken and repaired; what its tables have to hold is known exactly.
"""
