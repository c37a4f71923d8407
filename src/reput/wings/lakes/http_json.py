"""Get short JSON documents from an HTTP service, with a time limit and retries."""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from reput.errors import StoreUnreachableError, UsageError
from reput.io import within

_TIMEOUT_S = 10.0
_TRY_TIMEOUTS = 3
_TRIES = 4
_FIRST_PAUSE_S = 0.2
_MOST_BYTES = 4 << 20
# Status codes of temporary faults, after which the request is repeated.
_PASSING = (408, 425, 429, 500, 502, 503, 504)


_PASSWORD = re.compile(r"//[^/\s]*@")


def without_password(text: str) -> str:
    """Return a text in which users and passwords of URLs are masked."""
    return _PASSWORD.sub("//***@", text)


class _NoRedirects(HTTPRedirectHandler):
    """Refuse redirects, because they would send the password to another host."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


class HttpService:
    """A service that answers with JSON.

    Args:
        url: An http or https URL, which may contain user and password.
        argument: Name of the caller's argument that holds the URL, for error messages.
        timeout_s: Maximum wait in seconds, for the connection and then for each next part of the answer. A whole
            attempt may take three times as long.
        pause: Function that waits some seconds before the next attempt.

    Raises:
        UsageError: The URL is not valid.
    """

    def __init__(
        self,
        url: str,
        argument: str,
        *,
        timeout_s: float = _TIMEOUT_S,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            parts = urlsplit(url)
            host = parts.netloc.rpartition("@")[2]
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
            is_url = is_url and (parts.port is None or parts.port > 0)
        except ValueError:
            is_url = False
        if not is_url or parts.query or parts.fragment:
            raise UsageError(
                f"{argument}: the URL must be http://HOST or https://HOST", arguments=[argument]
            )
        # The name appears in messages, so it must not contain user and password.
        self.name = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": "application/json"}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
        self._timeout_s, self._pause = timeout_s, pause

    def get(self, path: str) -> Any | None:
        """Return the document at a path below the URL, or None if the path does not exist.

        Raises:
            StoreUnreachableError: The service refuses the request, does not answer, or its answer is not a document.
        """
        request = Request(f"{self.name}/{path}", headers=self._headers)
        pause_s = _FIRST_PAUSE_S
        for tries in reversed(range(_TRIES)):
            try:
                # The time-out of a socket restarts with every received byte, so the whole attempt has a deadline of
                # its own.
                whole_s = _TRY_TIMEOUTS * self._timeout_s
                data = within(whole_s, f"{self.name}/{path}", partial(self._read, request))
                break
            except StoreUnreachableError:
                if not tries:
                    raise
            except HTTPError as error:
                error.close()
                if error.code == 404:
                    return None
                if error.code not in _PASSING or not tries:
                    raise self._failed(path, f"HTTP status {error.code}") from None
            except (URLError, HTTPException, OSError) as error:
                if not tries:
                    reason = getattr(error, "reason", None) or error
                    raise self._failed(path, str(reason) or type(error).__name__) from None
            self._pause(pause_s)
            pause_s *= 4
        if len(data) > _MOST_BYTES:
            raise self._failed(path, f"an answer of more than {_MOST_BYTES:,} bytes")
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise self._failed(path, "an answer that is not JSON") from None

    def _read(self, request: Request) -> bytes:
        with build_opener(_NoRedirects).open(request, timeout=self._timeout_s) as answer:
            # Request one byte more than the limit, to detect a longer answer.
            data: bytes = answer.read(_MOST_BYTES + 1)
        return data

    def _failed(self, path: str, reason: str) -> StoreUnreachableError:
        return StoreUnreachableError(f"{self.name}/{path}: {reason}")
