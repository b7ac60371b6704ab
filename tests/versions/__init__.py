"""The ranges of versions in `pyproject.toml`, tried at their ends and between: `python -m tests.versions [ROW ...]`.

- `rows`: which versions, and which tests run with them
- `environment`: the wheel in an environment of its own, and a copy of the tests without `lib/`
- `plugin`: refuses to test another package than the installed one

The pins of `constraints.txt` are what all other tests run with.
"""
