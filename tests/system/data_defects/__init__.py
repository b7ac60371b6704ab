"""What the gate stops: defects planted into the staging tables of realistic runs of every job, and clean runs beside.

`python -m tests.system.data_defects [JOB ...]` prints for each job how many defects were caught and missed, and how
many clean runs were blocked.

- `run`: a run of a job on the streaming host's own tasks, stores and Delta commits, without a JVM
- `tests.support.data_defects`: what is damaged, and how it is done and undone
- `checking`: the gate on damaged tables, on clean ones, and on clean ones that would correct damaged ones
- `defects`: the defects of each job
"""
