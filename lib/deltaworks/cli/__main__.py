"""`python -m deltaworks.cli`."""

from deltaworks.cli.app import main

main()
