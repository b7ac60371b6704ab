"""Airflow's side of the streams: the only package that imports Airflow.

A pipeline needs only a file in `jobs/`: `bundle` writes its DAG file, `stream` makes the DAG `<name>__stream` (deploy,
supervise, stop), `reconcile` makes `streams__reconcile`, which heals all streams, `notices` makes `streams__notices`,
which tells people of incidents, `days` makes `streams__days`, which tells others of closed days, `dead_letters` makes
`streams__dead_letters`, which sends failed records again, and `maintenance` makes `streams__maintenance`, which cleans
the home and describes its tables. Each task makes one call to `deltaworks.control`, as the command line does. A stream
never runs inside a task: the supervising task is deferred (`triggers`) and only watches, so nothing that happens to
Airflow stops a stream.
"""
