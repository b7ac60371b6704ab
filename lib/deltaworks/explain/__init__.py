"""Where a row of a table came from: the records that went into it, and a test case that makes it again.

`tracing` processes recorded batches again and notes what depends on what. `candidates` turns this into sets of records.
`reduction` runs them in the test driver, until a set reproduces the row, and makes it small. `explaining` puts it
together; `question` finds the row in its table, `reading` the records; `masking` hides what is secret; `written` writes
the test. The notion of "went into it" is in `docs/tables/explain.md`.
"""
