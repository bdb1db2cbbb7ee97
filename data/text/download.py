"""Downloads the text of tiny Shakespeare."""

import http.client
import time
import urllib.request

from data.text.sources import CorpusError


def download(url: str, largest: int, seconds: float = 30.0) -> bytes:
    """The content at `url`, cut after `largest` bytes and one block.

    Raises CorpusError if the server is unreachable, breaks off, or needs more than `seconds`.
    """
    try:
        with urllib.request.urlopen(url, timeout=seconds) as response:
            return _read(response, largest, time.monotonic() + seconds)
    # refused, timed out, reset, broken off, not HTTP
    except (OSError, http.client.HTTPException) as error:
        raise CorpusError(f"cannot download tiny Shakespeare ({error})") from error


def _read(response: http.client.HTTPResponse, largest: int, deadline: float) -> bytes:
    content = b""
    while block := response.read1(1 << 16):
        content += block
        if len(content) > largest:
            break
        if time.monotonic() > deadline:
            raise TimeoutError("it takes too long")

    return content
