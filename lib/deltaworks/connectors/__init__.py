"""Connectors of Kafka Connect that are operated like streams: supervised, told of, and shown beside them.

`deltaworks.connect` is what a connector is, and needs no registry. Here is what needs one: `supervision.py` restarts,
deploys and repairs, `watch.py` records incidents of it, and `overview.py` is for `deltaworks status`. `dead_letters.py`
reads the records on which sinks have failed, and `resends.py` sends them again.
"""
