"""The supervisor, with drivers without Spark; the arguments are the drivers', but for `--drain` before them."""

from __future__ import annotations

import sys

from deltaworks.control.supervisor import server
from tests.integration.control import fake_driver

if __name__ == "__main__":
    server.main(fake_driver.command(*(argument for argument in sys.argv[1:] if argument != "--drain")))
