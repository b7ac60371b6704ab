"""The pipelines of the soak; copied into the `jobs/` of a project of its own. `../models.py` says what must come out.

Every result depends on the records alone, not on how they were cut into batches, nor on what was run twice.
"""
