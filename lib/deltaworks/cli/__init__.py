"""The command line, `deltaworks --help`: a thin layer over the other packages, which are imported when needed.

- `console`: output and error messages
- `stack`, `pipelines`, `replay`, `recovery`, `tables`, `quality`: the commands
- `demo`: all of it in one command, with a check of every result
"""

from deltaworks.cli.app import main

__all__ = ["main"]
