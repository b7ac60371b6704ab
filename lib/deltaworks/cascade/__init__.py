"""Who reads what a replay publishes: pipelines and batch jobs behind it, in order.

- `graph`: the order, and cycles; pure
- `project`: what the pipelines and batch jobs of a project read and write, and who else names their tables
- `readers`: what a replay means for them, for people
- `rehearsal`: computes the batch jobs behind a replay on clones of the tables, before anybody is asked
- `changes`: what that would change in the table of a job
- `release`: computes the batch jobs behind a replay again, as part of it; and again when it is rolled back
"""
