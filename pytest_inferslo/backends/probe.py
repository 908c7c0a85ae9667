"""Single HTTP questions to a server.

Never through a proxy of the environment, never with `.netrc` credentials.
"""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import requests

from pytest_inferslo.core.endpoint import Endpoint


@dataclass(frozen=True)
class Answer:
    """`status` 0: no HTTP answer came, and `text` says why; `refused` when nobody listens there."""

    status: int
    text: str
    refused: bool = False

    def json(self) -> Any:
        """The body as JSON, None when it is none."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.text[:300].strip()}" if self.status else self.text


class Probe:
    """Asks one endpoint. The key is read from the environment at the time of asking."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = (endpoint.ca_file or True) if endpoint.verify_tls else False
        if (
            not endpoint.verify_tls
        ):  # the user said so; under `-W error` each request would fail of the reminder
            warnings.filterwarnings("ignore", "Unverified HTTPS request")

    def get(self, path: str, timeout_s: float) -> Answer:
        return self._ask("GET", self.endpoint.url + path, None, timeout_s)

    def post(self, path: str, body: Any, timeout_s: float) -> Answer:
        return self._ask("POST", self.endpoint.url + path, body, timeout_s)

    def get_url(self, url: str, timeout_s: float) -> Answer:
        return self._ask("GET", url, None, timeout_s)

    def _ask(self, method: str, url: str, body: Any, timeout_s: float) -> Answer:
        # Not kept alive: Triton and uvicorn put off their end for as long as an idle connection is open.
        headers = {"Connection": "close", **self.endpoint.headers}
        if self.endpoint.api_key_env and (key := os.environ.get(self.endpoint.api_key_env)):
            headers["Authorization"] = f"Bearer {key}"
        try:
            response = self._session.request(
                method,
                url,
                json=body,
                headers=headers,
                timeout=(min(timeout_s, 5.0), timeout_s),
                allow_redirects=False,
            )
        except requests.exceptions.SSLError as error:
            return Answer(0, f"{shown(url)}: TLS failed: {error}")
        except requests.exceptions.ConnectionError as error:
            refused = "Connection refused" in str(error)
            return Answer(0, f"{shown(url)}: {'connection refused' if refused else error}", refused)
        except requests.exceptions.Timeout:
            return Answer(0, f"{shown(url)}: no answer within {timeout_s:.0f} s")
        except requests.exceptions.RequestException as error:
            return Answer(0, f"{shown(url)}: {error}")
        finally:
            # A server that closes without saying so would be asked next on the connection that it is about to close.
            self._session.close()
        return Answer(response.status_code, response.text)

    def close(self) -> None:
        self._session.close()


def shown(url: str) -> str:
    """A URL for messages: without its query, which may carry a secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
