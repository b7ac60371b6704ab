"""`python -m deltaworks.cli`."""

from deltaworks.cli import main

main()
