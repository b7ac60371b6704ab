"""The command line: `deltaworks --help`. Thin over `stack`, `spark` and `lakehouse`, which are imported when needed.

- `console`: what the user sees, and what an error looks like
- `stack`, `pipelines`, `tables`, `quality`: the commands
- `demo`: everything in one go, checked
"""

from deltaworks.cli.app import main

__all__ = ["main"]
