"""The server of `brobust explore`: one page and its questions, for one browser on this machine.

It listens on 127.0.0.1 only. Any page of the web can send requests there, and a name of the web can be made to point
there (DNS rebinding), so a request must have the server's own address as its Host, no foreign Origin, and the token,
which the page's address has and no other page can read. Answers may not be framed, read or cached by others.
"""

import hmac
import json
import secrets
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from brobust.errors import BadInput, BrobustError, debugging, one_line, reason
from brobust.explore.answers import Answers

ADDRESS = "127.0.0.1"
MAX_BODY = 65_536  # bytes
WAIT_SECONDS = 10  # for a request that does not end


class Server(ThreadingHTTPServer):
    """Serves the page until it is closed. `url` is its address, with the token."""

    daemon_threads = True

    def __init__(self, answers: Answers, port: int = 0):
        self.answers, self.token = answers, secrets.token_urlsafe(16)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise BadInput(f"--port {port}: {reason(error)}; give another, or none") from None
        self.hosts = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has gone away."""
        if debugging():
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "brobust", ""
    timeout = WAIT_SECONDS

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        token = parse_qs(address.query).get("token", [""])[0]
        if not self._is_allowed(token):
            return
        if address.path != "/":
            self._refuse(HTTPStatus.NOT_FOUND, "there is one page here: /")
            return
        nonce = secrets.token_urlsafe(16)
        self._answer(HTTPStatus.OK, "text/html; charset=utf-8", [_page(nonce).encode()], nonce)

    def do_POST(self) -> None:
        if not self._is_allowed(self.headers.get("X-Brobust-Token", "")):
            return
        try:
            asked = self._asked()
            question = getattr(self.server.answers, f"answer_{urlsplit(self.path).path.strip('/')}", None)
            if question is None:
                self._refuse(HTTPStatus.NOT_FOUND, "no such question")
                return
            lines = (json.dumps(answer).encode() + b"\n" for answer in question(**asked))
            first = next(lines, b"")  # what is refused is refused before the answer begins
        except BrobustError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except TypeError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"this is no question: {error}")
        except Exception as error:
            if debugging():
                raise
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, one_line(error))
        else:
            self._answer(HTTPStatus.OK, "application/x-ndjson", [first])
            self._go_on(lines)

    def _go_on(self, lines: Iterable[bytes]) -> None:
        """Write the rest of an answer as it comes. What is refused now is its last line."""
        try:
            for line in lines:
                self.wfile.write(line)
        except OSError:  # the browser asks something else
            raise
        except Exception as error:
            self.wfile.write(json.dumps({"refused": one_line(error)}).encode() + b"\n")

    def _is_allowed(self, token: str) -> bool:
        """Whether the page itself asks. Else refuse."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host not in self.server.hosts or origin not in (None, f"http://{host}"):
            self._refuse(HTTPStatus.FORBIDDEN, "this page is for this machine only")
            return False
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "the token is not right; open the address that `brobust explore` prints")
            return False
        return True

    def _asked(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY:
            raise BadInput(f"a question has a length of at most {MAX_BODY} bytes")
        try:
            asked = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise BadInput("the question is not JSON") from None
        if not isinstance(asked, dict):
            raise BadInput("the question is no object of JSON")
        return asked

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, "application/json", [json.dumps({"refused": why}).encode()])

    def _answer(self, status: HTTPStatus, kind: str, parts: list[bytes], nonce: str | None = None) -> None:
        """Send the head of an answer, and its first parts. The connection's end is the answer's end."""
        scripts = f"script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; " if nonce else ""
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Security-Policy": f"default-src 'none'; {scripts}connect-src 'self'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            "Connection": "close",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        for part in parts:
            self.wfile.write(part)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal has the address, and requests are the page's own."""


def _page(nonce: str) -> str:
    files = resources.files("brobust.explore")
    page = (files / "page.html").read_text()
    for name in ("uPlot.iife.min.js", "uPlot.min.css"):
        page = page.replace(f"/* {name} */", (files / name).read_text())
    return page.replace("NONCE", nonce)
