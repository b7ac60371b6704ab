"""The DSL: handles over a topology under construction. No engine, no I/O."""
