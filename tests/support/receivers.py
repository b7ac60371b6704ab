"""Servers that receive mails and webhooks, in threads of the test."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any


@dataclass
class Mails:
    """What an SMTP server has received."""

    port: int = 0
    messages: list[EmailMessage] = field(default_factory=list)
    refuses: bool = False
    """Whether it takes no mail now."""


@dataclass
class Posts:
    """What a web server has received."""

    port: int = 0
    received: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    """Path, headers and body of each request."""
    status: int = 200
    """What it answers."""


@contextmanager
def smtp_server() -> Iterator[Mails]:
    """A server that speaks SMTP (RFC 5321), as far as a client needs it to deliver a mail."""
    mails = Mails()

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 here")
            while line := self.rfile.readline():
                match line.split()[0].upper():
                    case b"EHLO" | b"HELO":
                        self._say("250 here")
                    case b"MAIL" if mails.refuses:
                        self._say("451 not now")
                    case b"DATA":
                        self._say("354 go on")
                        mails.messages.append(self._mail())
                        self._say("250 taken")
                    case b"QUIT":
                        return self._say("221 bye")
                    case _:
                        self._say("250 well")

        def _mail(self) -> EmailMessage:
            lines = iter(self.rfile.readline, b".\r\n")
            content = b"".join(line.removeprefix(b".") if line.startswith(b"..") else line for line in lines)
            message = message_from_bytes(content, policy=policy.default)
            assert isinstance(message, EmailMessage)
            return message

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with _served(Server(("127.0.0.1", 0), Session)) as mails.port:
        yield mails


@contextmanager
def web_server() -> Iterator[Posts]:
    """A server that takes every POST."""
    posts = Posts()

    class Session(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posts.received.append((self.path, dict(self.headers.items()), body))
            self.send_response(posts.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with _served(ThreadingHTTPServer(("127.0.0.1", 0), Session)) as posts.port:
        yield posts


@contextmanager
def says(port: int, path: str, content: object) -> Iterator[None]:
    """A server with one page, which says this as JSON."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == path
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with _served(HTTPServer(("127.0.0.1", port), Page)):
        yield


@contextmanager
def _served(server: socketserver.TCPServer) -> Iterator[int]:
    """Its port, while it serves."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
