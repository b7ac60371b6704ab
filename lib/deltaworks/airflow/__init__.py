"""Airflow's side of the streams: the only package that imports Airflow.

A file in `jobs/` is enough: `bundle` gives each pipeline a DAG file, `stream` makes the DAG `<name>__stream` (deploy,
supervise, stop), `reconcile` the DAG `streams__reconcile` that heals all of them. What a task does is one call of
`deltaworks.control`; the same calls are behind the command line. A stream never lives inside a task: the supervising
one is deferred (`triggers`) and only watches, so nothing that happens to Airflow stops a stream.
"""
