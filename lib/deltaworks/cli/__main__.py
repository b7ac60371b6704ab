"""`python -m deltaworks.cli`."""

from deltaworks.cli.main import main

main()
