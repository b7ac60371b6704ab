"""Delta tables: their layout, how tasks write files, how the driver commits them, and how to read them.

- `columns`, `schema`: columns from Python types
- `task_tables`, `pages`, `page_index`, `parquet`, `writes`: inside a task: write rows to Parquet files
- `committer`, `log`, `versions`, `compaction`, `snapshots`, `trash`: inside the driver: commit the files
- `foreign`, `repair`: commits of other writers
- `publish`: puts the rows of a replay in place of production's, and takes them back, with `row_origins`, `retained`
- `catalog`: lists and reads tables
"""
