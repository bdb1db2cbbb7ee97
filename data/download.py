"""Downloads the text of tiny Shakespeare."""

import http.client
import time
import urllib.request

from data.sources import CorpusError


def download(url: str, largest: int, seconds: float = 30.0) -> bytes:
    """The content at `url`, cut after `largest` bytes and one block.

    Raises CorpusError if the server is unreachable, breaks off, or needs more than `seconds`.
    """
    deadline, content = time.monotonic() + seconds, b""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as response:
            while len(content) <= largest and (block := response.read1(1 << 16)):
                content += block
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not done after {seconds:g} s")
    except (OSError, http.client.HTTPException) as error:  # refused, timed out, reset, broken off, not HTTP
        raise CorpusError(f"cannot download tiny Shakespeare ({error})") from error
    return content
