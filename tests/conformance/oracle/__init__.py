"""Differential tests: cases that nobody wrote, run by the real Kafka Streams and by ours.

`variations.py` makes them, seeded, from the recorded ones; `java/` interprets them with Kafka Streams' own
`TopologyTestDriver`; `python -m tests.conformance.oracle` runs both and shows what differs.
"""

from tests.conformance.oracle.variations import variations

__all__ = ["variations"]
