"""Data quality: suites of Great Expectations, run on Delta tables.

```python
from deltaworks.quality import validate

verdicts = validate({"orders": Path("tables/orders")}, {"orders": [gxe.ExpectColumnValuesToNotBeNull(column="key")]})
assert all(verdict.passed for verdict in verdicts)
```

- `verdict`: what is known of one expectation afterwards
- `validation`: `validate`; `rows` (on pandas, by Great Expectations) and `query` (on DuckDB) do the two kinds of work
- `tables`: Delta tables, Arrow and pandas as both need them
- `suites`: where the suites of a job are found
- `engine`: the import of Great Expectations, which takes five seconds; nothing of it is loaded before it is needed

A suite is plain data: Great Expectations' own classes. What only SQL can say (rules between rows, columns or tables)
is an `UnexpectedRowsExpectation`; DuckDB runs it, with every table there by its name.
"""

from deltaworks.quality.frames import Source
from deltaworks.quality.validation import Suites, validate
from deltaworks.quality.verdict import Outcome, Verdict

__all__ = ["Outcome", "Source", "Suites", "Verdict", "validate"]
