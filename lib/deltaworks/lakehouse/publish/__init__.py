"""Changes of live tables by a replay: compare, publish, roll back, hand over and give back.

- `scope`: which rows a replay stands for
- `differences`, `comparison`: the rows in which its tables differ from production
- `replacement`: the files that a publication removes and adds; `publication`: one Delta commit per table, and rollbacks
- `ownership`: hands tables over to another query with the result of a replay, and back
"""
