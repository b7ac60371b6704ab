"""Delta tables: what they look like, how tasks write their files, how the driver commits them, how to read them.

- `columns`, `schema`: columns from Python types
- `task_tables`, `pages`, `page_index`, `parquet`, `writes`: inside a task: rows become Parquet files
- `committer`, `log`, `versions`, `compaction`, `snapshots`, `trash`: inside the driver: files become commits
- `foreign`, `repair`: what somebody else has committed
- `publish`: the rows of a replay in the place of production's, and back; `row_origins`, `retained`: what that needs
- `catalog`: for whoever reads
"""
