"""Downloads the text of tiny Shakespeare."""

import http.client
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from data.text.sources import CorpusError
from runs.files import reporting_os_errors, write_atomically

URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
N_BYTES = 1_115_394
SECONDS = 30.0  # for the whole download


def downloaded(
    cached: Path, check: Callable[[bytes, str], None], announce: Callable[[str], None]
) -> str:
    """Download the text, `check` it, and keep it as `cached` if that is possible."""
    announce(f"downloading tiny Shakespeare ({N_BYTES / 1e6:.1f} MB)")
    content = download(URL, N_BYTES)
    check(content, f"the file at {URL}")
    with reporting_os_errors(
        announce, f"{str(cached)!r}, so the text will be downloaded again"
    ):
        write_atomically(cached, content)

    return content.decode("utf-8")


def download(url: str, largest: int) -> bytes:
    """The content at `url`, cut after `largest` bytes and one block.

    Raises CorpusError if the server is unreachable, breaks off, or needs more than `SECONDS`.
    """
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as response:
            return _read(response, largest, time.monotonic() + SECONDS)
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
