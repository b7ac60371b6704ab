"""Serves the stores of running streams over HTTP: `queries` behind a server, with access rights and limits.

`routes.py` is the table of what can be asked, from which the pages and the OpenAPI document are made; `parameters.py`
reads what a request says; `streams.py` has the streams that are open; `access.py` says who may read what; `changes.py`
follows a key and `store_changes.py` a table, both by `following.py`; `app.py` puts them together, and `serving.py` runs
them.
"""
