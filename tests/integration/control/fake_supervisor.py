"""The supervisor, with drivers without Spark; the arguments are the drivers', but for its own."""

from __future__ import annotations

import sys

from deltaworks.control.supervisor import client, server
from tests.integration.control import fake_driver

_OWN = (client.DRAIN, client.IF_NONE)

if __name__ == "__main__":
    server.main(fake_driver.command(*(argument for argument in sys.argv[1:] if argument not in _OWN)))
