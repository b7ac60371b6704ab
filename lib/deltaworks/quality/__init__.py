"""Data quality: runs suites of Great Expectations on Delta tables.

```python
from deltaworks.quality import validate

verdicts = validate({"orders": Path("tables/orders")}, {"orders": [gxe.ExpectColumnValuesToNotBeNull(column="key")]})
assert all(verdict.passed for verdict in verdicts)
```

- `verdict`: the result of one expectation
- `validation`: `validate`, which uses `rows` (Great Expectations on pandas) and DuckDB
- `parts`: tables that do not fit as one data frame, with `suspects` and `uniqueness`
- `checks`: freshness by the clock, recent volume, sums between tables; `progress`: what they know of the stream
- `frames`: Delta, Arrow and pandas tables in the form that both need
- `suites`: finds the suites of a job
- `engine`: imports Great Expectations, which takes five seconds, only when it is needed

A suite is plain data: Great Expectations' own classes. Rules that need SQL (between rows, columns or tables) are
`UnexpectedRowsExpectation`s; DuckDB runs them, with every table available by its name.
"""

from deltaworks.quality.checks import Freshness, RecentVolume, SumsReconciled
from deltaworks.quality.frames import Source
from deltaworks.quality.validation import Suites, validate
from deltaworks.quality.verdict import Outcome, Verdict

__all__ = [
    "Freshness",
    "Outcome",
    "RecentVolume",
    "Source",
    "Suites",
    "SumsReconciled",
    "Verdict",
    "validate",
]
