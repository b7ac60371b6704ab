"""Metrics, alerts, dashboards and figures of real streams, while they are killed (`make check-monitoring`)."""
