"""What a replay does to live tables: compare, publish, roll back, hand over and give back.

- `scope`: which rows a replay stands for
- `differences`, `comparison`: in which rows its tables differ from production
- `replacement`: the files that go and come; `publication`: one Delta commit per table, and taking it back
- `ownership`: tables that go over to another query with what a replay has made of them, and back
"""
