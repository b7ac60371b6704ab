"""Ways out of what is refused, as an operator meets it: `make check-recovery`."""
