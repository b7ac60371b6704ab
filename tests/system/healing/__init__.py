"""SIGKILLs of every component around a stream, each alone: `make check-heal`."""
