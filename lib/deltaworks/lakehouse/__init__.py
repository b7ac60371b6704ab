"""Delta tables: what they look like, how tasks write their files, how the driver commits them, how to read them.

- `columns`, `schema`: columns from Python types
- `tables`, `pages`, `parquet`, `writes`: inside a task: rows become Parquet files
- `committer`, `log`, `versions`, `compaction`, `snapshots`, `trash`: inside the driver: files become commits
- `foreign`, `repair`: what somebody else has committed
- `release`, `replacement`, `origins`, `kept`: the rows of a replay in the place of production's, and back
- `catalog`: for whoever reads
"""
