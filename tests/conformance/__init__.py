"""Cases recorded from the real Kafka Streams library, run by our kernel. `data/SPEC.md` defines their language."""

from tests.conformance.run import run_case

__all__ = ["run_case"]
