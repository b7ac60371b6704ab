"""Started by Spark in place of Python: hands command, environment and streams to the fork server, and waits for it.

Runs without our package and without any other (`python -I -S`), in some milliseconds. If the server does not answer, or
the command is not a module, it becomes an ordinary Python.
"""

import contextlib
import os
import socket
import sys


def main() -> None:
    python, server, *arguments = sys.argv[1:]
    if arguments[:1] == ["-m"]:
        with contextlib.suppress(OSError):
            _wait_for(_hand_over(server, arguments[1:]))
    os.execv(python, [python, *arguments])


def _hand_over(server: str, arguments: list[str]) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect("\0" + server)
    variables = [part for item in os.environ.items() for part in item]
    request = "\0".join([os.getcwd(), str(len(arguments)), *arguments, *variables])  # noqa: PTH109 # pathlib takes long
    socket.send_fds(connection, [request.encode(errors="surrogateescape")], [0, 1, 2])
    if not connection.recv(1):  # it was ending, and has not accepted the request
        raise ConnectionError
    return connection


def _wait_for(connection: socket.socket) -> None:
    """`cat` takes a tenth of the memory of a Python that waits; it ends when the server closes the connection."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(connection.fileno(), 0)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.execvp("cat", ["cat"])


if __name__ == "__main__":
    main()
