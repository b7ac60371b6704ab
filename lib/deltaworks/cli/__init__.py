"""The command line, `deltaworks --help`: a thin layer over the other packages, which are imported when needed.

- `console`: output and error messages
- `stack`, `pipelines`, `replay`, `recovery`, `tables`, `quality`: the commands
- `demo`: all of it in one command, with a check of every result
"""

from __future__ import annotations


def main() -> None:
    """The entry point `deltaworks`."""
    import sys

    try:
        from deltaworks.cli import app
    except ModuleNotFoundError as error:
        from deltaworks.exits import CONFIG
        from deltaworks.extras import missing

        if (found := missing(error)) is None:
            raise
        print(f"error: {found}", file=sys.stderr)
        sys.exit(CONFIG)
    app.main()


__all__ = ["main"]
