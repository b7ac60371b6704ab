"""Who listens where."""

from __future__ import annotations

import os
import socket
from contextlib import closing

import pytest

from deltaworks.errors import StackError
from deltaworks.stack import ports
from deltaworks.stack.ports import free_ports


def listening() -> socket.socket:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server


def test_a_port_that_is_taken_names_its_holder() -> None:
    with closing(listening()) as server:
        port = server.getsockname()[1]

        assert not ports.is_free(port)
        assert ports.answers(port)
        with pytest.raises(StackError, match=rf"Port {port}, where X should listen, is used by process {os.getpid()} "):
            ports.require_free(port, "X", hint="choose another")


def test_free_ports_are_different_and_free() -> None:
    found = free_ports(5)

    assert len(set(found)) == 5
    assert all(map(ports.is_free, found))
    assert not any(map(ports.answers, found))
