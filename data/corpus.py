"""The text that is trained on: tiny Shakespeare, the built-in play, or any UTF-8 file.

Tiny Shakespeare is looked for in this order: the file that the environment variable
`FOLIO_TINY_SHAKESPEARE` names, the cache, the download. Whatever the source, its hash is checked.
"""

import hashlib
import http.client
import os
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from data.play.automaton import Automaton
from data.play.grammar import PLAY, grammar, play

TINY_SHAKESPEARE = "tiny_shakespeare"
TINY_SHAKESPEARE_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
TINY_SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
TINY_SHAKESPEARE_BYTES = 1_115_394
ENVIRONMENT_VARIABLE = "FOLIO_TINY_SHAKESPEARE"
CACHE = Path(os.environ.get("FOLIO_CACHE") or Path(__file__).parent / "cache")

DOWNLOAD_SECONDS = 30.0
HOW_TO_GET_IT = f"set {ENVIRONMENT_VARIABLE} to a copy of the file, or data.corpus=PATH to any UTF-8 text"

BANNER = """\
================================================================================
This is NOT tiny Shakespeare: {reason}.
The built-in play takes its place. For the real text,
{how}.
================================================================================"""


class CorpusError(ValueError):
    """The text cannot be had, or cannot be used; the message is one line for the user."""


@dataclass(frozen=True)
class Corpus:
    """A text in two parts: models, strategies and counting learn from `training`; `validation` only measures them.

    `name` identifies the corpus in a run's config and metrics: `tiny_shakespeare`, `play`, or an absolute path.
    """

    name: str
    training: str = field(repr=False)
    validation: str = field(repr=False)
    automaton: Automaton | None = field(default=None, repr=False)  # the source of the text, if it is known exactly

    @classmethod
    def from_text(cls, name: str, text: str, automaton: Automaton | None = None) -> "Corpus":
        """Split a text: the first 90% of its characters are for training, the rest for validation."""
        split = int(len(text) * 0.9)
        return cls(name, text[:split], text[split:], automaton)

    @property
    def characters(self) -> str:
        """The sorted characters of both parts."""
        return "".join(sorted({*self.training, *self.validation}))

    @property
    def sha256(self) -> str:
        """The hash of the whole text in UTF-8, which identifies the text whatever its name."""
        digest = hashlib.sha256(self.training.encode("utf-8"))
        digest.update(self.validation.encode("utf-8"))
        return digest.hexdigest()


def load_corpus(name: str, announce: Callable[[str], None] = print) -> Corpus:
    """Load the corpus that `data.corpus` names.

    `name` is `tiny_shakespeare`, `play`, `auto` (the first, or where it cannot be had the second), or the path of
    a UTF-8 text file. `announce` gets what the user should know: a line before a download, a banner before the
    play takes the place of tiny Shakespeare. Raises CorpusError where the text is missing, not UTF-8, or empty.
    """
    if name == PLAY:
        return Corpus.from_text(PLAY, play(), grammar())
    if name in ("auto", TINY_SHAKESPEARE):
        try:
            return Corpus.from_text(TINY_SHAKESPEARE, _tiny_shakespeare(announce))
        except CorpusError as error:
            if name == TINY_SHAKESPEARE:
                raise CorpusError(f"{error}: {HOW_TO_GET_IT}") from error
            announce(BANNER.format(reason=error, how=HOW_TO_GET_IT))
            return load_corpus(PLAY)
    text = _read_text(Path(name).expanduser(), "data.corpus")
    return Corpus.from_text(str(Path(name).expanduser().resolve()), text)


def _tiny_shakespeare(announce: Callable[[str], None]) -> str:
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if named:
        text = _read_text(Path(named).expanduser(), ENVIRONMENT_VARIABLE)
        _check_hash(text.encode("utf-8"), f"{ENVIRONMENT_VARIABLE}={named}")
        return text
    cached = CACHE / "tiny_shakespeare.txt"
    if cached.exists():
        text = _read_text(cached, "the cached corpus")
        _check_hash(text.encode("utf-8"), f"{cached} (delete it to download it again)")
        return text
    announce(f"downloading tiny Shakespeare ({TINY_SHAKESPEARE_BYTES / 1e6:.1f} MB)")
    content = download(TINY_SHAKESPEARE_URL)
    try:
        _keep(content, cached)
    except OSError as error:  # a cache that cannot be written costs another download, nothing else
        announce(f"cannot keep it in {cached} ({error.strerror or error}): it will be downloaded again")
    return content.decode("utf-8")


def download(url: str, seconds: float = DOWNLOAD_SECONDS) -> bytes:
    """Download tiny Shakespeare from `url`, within `seconds` in all.

    Raises CorpusError where it does not come, not in time, not whole, or where something else comes.
    """
    deadline = time.monotonic() + seconds
    content = b""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as response:
            # One byte more than expected shows a wrong file without reading all of it.
            while len(content) <= TINY_SHAKESPEARE_BYTES and (block := response.read1(1 << 16)):
                content += block
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not done after {seconds:g} s")
    except (OSError, http.client.HTTPException) as error:  # refused, timed out, reset, broken off, not HTTP
        raise CorpusError(f"cannot download tiny Shakespeare ({error})") from error
    _check_hash(content, f"what {url} sent")
    return content


def _keep(content: bytes, target: Path) -> None:
    """Write a file under a temporary name and rename it: `target` is never half a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, target)


def _check_hash(content: bytes, source: str) -> None:
    if hashlib.sha256(content).hexdigest() != TINY_SHAKESPEARE_SHA256:
        raise CorpusError(f"{source} is not tiny Shakespeare (its SHA-256 is wrong)")


def _read_text(path: Path, source: str) -> str:
    try:
        # newline="" keeps the text as it is: no translation of line ends.
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise CorpusError(f"{source}: {path} is not UTF-8 text (byte {error.start}): convert it first") from error
    except OSError as error:
        raise CorpusError(f"{source}: cannot read {path} ({error.strerror or error})") from error
    if not text:
        raise CorpusError(f"{source}: {path} is empty")
    return text
