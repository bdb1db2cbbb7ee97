from pathlib import Path

import pytest
import torch
from PIL import Image, ImageColor, ImageSequence

from data.vocabulary import Vocabulary
from trained.template import Template, blanks_of
from writing.animation import BACKGROUND, COLUMNS, LINE, MARGIN, MOST_FRAMES, Recording

VOCABULARY = Vocabulary("\nabcdefghi ")
TEXT = "abc def ghi\n" * 8


def recorded(tmp_path, text, n_steps):
    """The GIF of a text that is written from the left in `n_steps` steps."""
    ids = VOCABULARY.encode(text)
    template = Template([blanks_of(len(ids), VOCABULARY)], VOCABULARY)
    recording = Recording(tmp_path / "text.gif", template)

    for step in range(n_steps + 1):
        written = torch.arange(len(ids)) < len(ids) * step / n_steps
        recording.show(ids.where(written, VOCABULARY.mask_token))

    recording.finish(ids)

    (path,) = filter(Path.is_file, tmp_path.iterdir())

    assert path == recording.path

    return Image.open(path)


@pytest.mark.parametrize("n_steps", [1, 2, 59, 60, 61, 96, 1_000])
def test_a_recording_has_few_frames_and_a_pause_at_the_end(tmp_path, n_steps):
    image = recorded(tmp_path, TEXT, n_steps)
    assert min(n_steps, MOST_FRAMES // 2) < image.n_frames <= MOST_FRAMES + 2

    durations = [frame.info["duration"] for frame in ImageSequence.Iterator(image)]

    assert durations[-1] >= 3_000
    assert sum(durations[:-1]) <= 10_000
    assert image.info["loop"] == 0


def ink(image, row):
    """The number of dark pixels of a line of text."""
    top = MARGIN + row * LINE
    line = image.convert("L").crop((MARGIN, top, image.width - MARGIN, top + LINE))
    return sum(line.histogram()[:128])


def test_blanks_are_light_and_the_text_is_dark(tmp_path):
    """There is room for the tallest frame: blanks fill two lines of 64 columns, the text 8 and an
    empty one."""
    image = recorded(tmp_path, TEXT, 5)
    assert len(TEXT) / COLUMNS <= 2
    assert image.height == 9 * LINE + 2 * MARGIN

    image.seek(0)

    assert not any(ink(image, row) for row in range(9))
    # dots, not the boxes of unknown characters
    assert 0 < sum(image.convert("L").histogram()[:240]) < len(TEXT) * 20

    image.seek(image.n_frames - 1)

    assert all(ink(image, row) > 100 for row in range(8))
    assert ink(image, 8) == 0


@pytest.mark.parametrize("n_steps", [1, 3, 20])
def test_new_characters_are_highlighted_until_the_last_frame(tmp_path, n_steps):
    greenish = []
    for image in ImageSequence.Iterator(recorded(tmp_path, "abc" * 7, n_steps)):
        colors = image.convert("RGB").getcolors()
        # the most frequent color
        assert max(colors)[1] == ImageColor.getrgb(BACKGROUND)

        counts = [
            count for count, (red, green, _) in colors if green > max(red + 20, 200)
        ]
        greenish.append(sum(counts))

    assert greenish[0] == greenish[-1] == 0
    assert greenish[1] > 50
