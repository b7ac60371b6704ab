"""Lines that are cut: what the cluster's checks believe of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.kills.cut_off import Lines

PROGRAM = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for line in sys.stdin:
    connection.sendall(line.encode())
    print(connection.recv(100).decode(), end="", flush=True)
"""


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that says what it hears; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer(connection: socket.socket) -> None:
            with connection:
                while heard := connection.recv(100):
                    connection.sendall(heard)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_what_is_sent_while_a_line_is_cut_arrives_once_it_is_mended(echo: int, tmp_path: Path, address: str) -> None:
    with Lines(tmp_path, {"echo": [echo], "other": [1]}) as lines:
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, address, str(echo)], env=os.environ | lines.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert program.stdin is not None and program.stdout is not None
        heard: list[str] = []

        def say(text: str) -> threading.Thread:
            assert program.stdin is not None and program.stdout is not None
            program.stdin.write(text + "\n")
            program.stdin.flush()
            stdout = program.stdout
            thread = threading.Thread(target=lambda: heard.append(stdout.readline()))
            thread.start()
            return thread

        with program:
            say("before").join(10)
            with lines.cut("echo"):
                waiting = say("meanwhile")
                waiting.join(0.5)
                assert heard == ["before\n"]
            waiting.join(10)
            assert heard == ["before\n", "meanwhile\n"]
            program.stdin.close()
        assert lines.connections("echo") == 1


def test_a_cut_of_a_line_that_nobody_uses_is_an_error(echo: int, tmp_path: Path) -> None:
    with Lines(tmp_path, {"echo": [echo]}) as lines:
        with pytest.raises(AssertionError, match="nobody has reached echo"), lines.cut("echo"):
            pass
        environment = os.environ | lines.environment
        command = [sys.executable, "-c", PROGRAM, "127.0.0.1", str(echo)]
        subprocess.run(command, env=environment, check=True, input="word\n", text=True, stdout=subprocess.DEVNULL)
        with pytest.raises(AssertionError, match="nobody wanted anything of echo"), lines.cut("echo"):
            pass
