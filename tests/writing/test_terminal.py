"""What a user sees: the output is read by a small terminal that knows the codes of
`writing.terminal`."""

import os
import pty
import re
import termios
import threading
import unicodedata
from contextlib import contextmanager, suppress

import pytest
import torch

import writing.terminal
from data.tokens.bytes import ByteVocabulary
from data.vocabulary import Vocabulary
from trained.template import Template, blanks_of, read_template
from writing.frames import BLANK, EMPTY, NEW, WRITTEN, Cell, cells, wrap
from writing.terminal import Screen, can_redraw

CODE = re.compile(r"\x1b\[(\d*(?:;\d+)*)([A-Za-z])|(.)", re.DOTALL)


class Emulator:
    """The rows of a terminal; those that leave it at the top are in `scrolled`."""

    def __init__(self, columns, rows):
        self.columns = columns
        self.n_rows = rows
        self.rows = [""] * rows
        self.row = 0
        self.column = 0
        self.scrolled = []

    def feed(self, output):
        for number, code, character in CODE.findall(output):
            if code == "A":
                self.row = max(0, self.row - int(number))
            elif code == "H":
                self.row = self.column = 0
            elif code == "J" and number == "2":
                self.rows = [""] * self.n_rows
            elif code in ("J", "K"):
                self.rows[self.row] = self.rows[self.row][: self.column]
                if code == "J":
                    self.rows[self.row + 1 :] = [""] * (self.n_rows - self.row - 1)
            elif character == "\r":
                self.column = 0
            elif character == "\n":
                self.down()
            elif character:
                if self.column == self.columns:
                    self.down()
                    self.column = 0
                line = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = (
                    line[: self.column] + character + line[self.column + 1 :]
                )
                self.column += 1

        return self

    def down(self):
        if self.row == self.n_rows - 1:
            self.scrolled.append(self.rows.pop(0))
            self.rows.append("")
        else:
            self.row += 1


@contextmanager
def terminal(columns, rows):
    """The user's side of a terminal as a stream, and a function that returns the output and closes
    it."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (rows, columns))
    parts = []

    def read():
        with suppress(OSError):  # how Linux reports that the other side has closed
            while part := os.read(ours, 65_536):
                parts.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    stream = os.fdopen(theirs, "w", encoding="utf-8")

    def output():
        stream.close()
        reader.join(timeout=30)
        return b"".join(parts).decode()

    yield stream, output
    stream.close()
    reader.join(timeout=30)
    os.close(ours)


@pytest.fixture(autouse=True)
def every_frame(monkeypatch):
    monkeypatch.setattr(writing.terminal, "SECONDS_PER_FRAME", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


VOCABULARY = Vocabulary("\n abcdefghijklmnopqrstuvwxyz\x1b中")
TEXT = "the cat\nsat on the mat\nand slept"


def blanks(n, vocabulary=VOCABULARY):
    return Template([blanks_of(n, vocabulary)], vocabulary)


def versions(text):
    """A text that is written in three steps, every third character at once."""
    ids = VOCABULARY.encode(text)
    turns = torch.arange(len(ids)) % 3
    return [ids.masked_fill(turns >= step, VOCABULARY.mask_token) for step in range(4)]


def frames_of(text, columns=40, rows=10, before=""):
    """The output of each frame, and of the end."""
    with terminal(columns, rows) as (stream, output):
        stream.write(before)
        screen = Screen(stream, blanks(len(text)))
        for ids in versions(text):
            screen.show(ids)
            stream.write("\a")  # marks the end of a frame

        screen.finish(ids)
        return output().split("\a")


def shown(text, columns, rows, before=""):
    """The emulator after each frame, and at the end."""
    emulator = Emulator(columns, rows)
    return map(emulator.feed, frames_of(text, columns, rows, before))


def test_frames_replace_each_other_below_what_was_there():
    frames = [
        list(emulator.rows) for emulator in shown(TEXT, 40, 10, before="$ command\n")
    ]
    assert frames[0][:3] == ["$ command", BLANK * len(TEXT), ""]
    assert frames[1][1].startswith("t··")

    for frame in frames[-2:]:
        assert frame == ["$ command", *TEXT.split("\n"), *[""] * 6]

    *_, last = shown("ab\x1bcd", 40, 10)

    assert last.rows[0] == "ab\\x1bcd"  # control characters do not reach the terminal


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 39])
def test_narrow_windows_show_the_same_text(columns):
    *_, last = shown(TEXT, columns, 50)
    unwrapped = "".join(last.rows).replace(" ", "")

    assert unwrapped == TEXT.replace("\n", "").replace(" ", "")
    assert last.scrolled == []


def test_a_frame_that_scrolls_the_screen_is_redrawn_in_place():
    *_, last = shown(TEXT, 40, 6, before="\n" * 4 + "$ command\n")
    assert last.rows == ["", "$ command", *TEXT.split("\n"), ""][-6:]


def test_a_text_taller_than_the_screen_is_printed_once():
    text = "\n".join("abcdefgh")
    frames = [emulator.scrolled + emulator.rows for emulator in shown(text, 40, 5)]

    assert frames[0][0] == BLANK * len(text)
    assert frames[3] == [""] * 5  # too tall, and erased
    assert frames[-1] == [*"abcdefgh", ""]


def test_a_resized_terminal_is_cleared():
    with terminal(40, 20) as (stream, output):
        screen = Screen(stream, blanks(len(TEXT)))
        first, *others = versions(TEXT)
        screen.show(first)
        termios.tcsetwinsize(stream.fileno(), (20, 10))
        for ids in others:
            screen.show(ids)

        screen.finish(ids)
        after = output().partition("\x1b[2J")[2]

    rows = Emulator(10, 20).feed(after).rows

    assert "".join(rows) == TEXT.replace("\n", "")


def test_blanks_are_faint_and_new_characters_bright():
    frames = frames_of("abcabc")
    assert f"\x1b[2m{BLANK * 6}\x1b[0m" in frames[0]
    assert f"\x1b[1;32ma\x1b[0m\x1b[2m{BLANK * 2}\x1b[0m" in frames[1]
    assert f"a\x1b[1;32mb\x1b[0m\x1b[2m{BLANK}\x1b[0m" in frames[2]


def test_no_color_and_at_most_25_frames_per_second(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(writing.terminal, "SECONDS_PER_FRAME", 0.04)
    clock = iter([0.0, 0.01, 0.03, 0.05])
    monkeypatch.setattr(writing.terminal.time, "monotonic", lambda: next(clock))

    frames = "".join(frames_of(TEXT)[:-1])

    assert frames.count("\x1b[J") == 2
    assert not re.search(r"\x1b\[[\d;]*m", frames)


@pytest.mark.parametrize(
    ("term", "encoding", "can"),
    [("xterm", "utf-8", True), ("dumb", "utf-8", False), ("xterm", "ascii", False)],
)
def test_terminals_that_cannot_redraw_are_recognized(monkeypatch, term, encoding, can):
    monkeypatch.setenv("TERM", term)
    with terminal(40, 10) as (stream, _):
        stream.reconfigure(encoding=encoding)
        assert can_redraw(stream) == can

    with open(os.devnull, "w", encoding="utf-8") as file:
        assert not can_redraw(file)


def test_lines_are_as_wide_as_the_window():
    text = "ab中中c" + unicodedata.normalize("NFD", "é") + "d\n\ne"
    lines = []
    for line in wrap([Cell(character, WRITTEN) for character in text], 3):
        lines.append("".join(cell.character for cell in line))

    assert lines == ["ab", "中", "中c", "e\u0301d", "", "e"]


def test_a_character_of_several_tokens_is_whole_when_they_are_written():
    vocabulary = ByteVocabulary()
    ids = vocabulary.encode("né!")
    before = ids.masked_fill(
        torch.tensor([False, True, True, True]), vocabulary.mask_token
    )

    first = Cell("n", WRITTEN)
    template = blanks(4, vocabulary)

    assert list(cells(before, before, template)) == [first, *[Cell(BLANK, EMPTY)] * 3]
    assert list(cells(ids, before, template)) == [
        first,
        Cell("é", NEW),
        Cell("!", NEW),
    ]


@pytest.mark.parametrize("special", [("[PAD]", "[MASK]"), ("[PAD]", "[MASK]", "[UNK]")])
def test_unknown_characters_of_the_prompt_stay(special):
    vocabulary = Vocabulary("ab ", special)
    template = read_template("aë_", vocabulary)
    ids = template.ids.clone()
    ids[2] = vocabulary.id_of("b")
    with terminal(40, 10) as (stream, output):
        screen = Screen(stream, template)
        screen.show(ids)
        screen.finish(ids)
        assert output().count("aëb") == 2
