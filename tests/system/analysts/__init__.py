"""What analysts rely on, on the real thing and for long: `make check-analysts`, or some parts of it.

`readers` has the tools of `docs/tables/query.md`; another tool is one more function there. `streaming` asks them all
while a stream is killed and replays are published, and `recomputed` says what they have to find. `old_versions` and
`month` move the clock; `explained` explains rows.
"""
