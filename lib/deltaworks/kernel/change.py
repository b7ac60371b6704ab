"""The value of a record of a table: what a row is now and what it was."""

from deltaworks.serdes.change import Change

__all__ = ["Change"]
