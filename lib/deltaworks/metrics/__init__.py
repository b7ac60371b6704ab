"""Metrics of running streams for Prometheus: one endpoint per driver, and where to find them all.

They are what the heartbeat says, so `deltaworks status` shows the same numbers. Tasks have no endpoints: what they
count comes to the driver with their results.
"""
