"""The page of the streams: what an operator sees of a home in a browser.

`reading.py` has what is known of streams, with the functions of `deltaworks status`; `history.py` what it was in the
last hours; `graph.py` a topology as boxes and lines, placed by `layout.py`, computed in a process of its own by
`described.py`. `documents.py` has the JSON, in which `access.py` leaves out what a viewer may not see. `app.py` is the
server, `serving.py` runs it. The front end is in `infra/ui`; `static/` is what `make ui` builds of it.

It changes nothing: actions are DAGs of Airflow, which asks its own users.
"""
