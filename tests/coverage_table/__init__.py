"""What became of every public method of Kafka Streams: `docs/kafka-streams.md`, made from here and checked here.

- `kafka_streams_api.tsv`: the methods, read from its jars (`java_api`, `class_files`).
- `mapping/*.toml`: what each of them is called here, and what is different, in words.
- `proofs.toml`: for everything of ours in the mapping a test that fails when it is mutated (`proofs`).
- `page`: the page. `python -m tests.coverage_table` writes it.
"""
