"""Asks the SQL server whether it lets a client in: `python -m deltaworks.stack.sql.client` ends with 0 if it does.

The first messages of its protocol are SASL's: status, length, content. A server that answers them has all tables.
"""

from __future__ import annotations

import socket
import struct
import sys

from deltaworks.settings import Settings
from deltaworks.stack.sql.server import credentials

_START, _OK, _COMPLETE = 1, 2, 5
_HEADER = struct.Struct(">BI")
_TIMEOUT_S = 5.0


def answers(settings: Settings) -> bool:
    """Whether the server accepts the user and the password of this home."""
    login = credentials(settings)
    try:
        with socket.create_connection((settings.sql_host, settings.sql_port), timeout=_TIMEOUT_S) as connection:
            return lets_in(connection, login.user, login.password)
    except OSError:
        return False


def lets_in(connection: socket.socket, user: str, password: str) -> bool:
    """Whether a server accepts these over a new connection."""
    word = f"\0{user}\0{password}".encode()
    connection.sendall(_message(_START, b"PLAIN") + _message(_OK, word))
    answer = b""
    while len(answer) < _HEADER.size:
        if not (more := connection.recv(_HEADER.size - len(answer))):
            return False
        answer += more
    return bool(_HEADER.unpack(answer)[0] == _COMPLETE)


def _message(status: int, content: bytes) -> bytes:
    return _HEADER.pack(status, len(content)) + content


if __name__ == "__main__":
    sys.exit(0 if answers(Settings.from_environment()) else 1)
