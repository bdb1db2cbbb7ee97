"""Records as a GIF how a text is written."""

from io import BytesIO
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from runs.files import write_atomically
from trained.template import Template
from writing.frames import EMPTY, NEW, WRITTEN, Cell, cells, wrap

COLUMNS = 64  # characters
FONT_SIZE = 16  # pixels, as the next two
LINE = 21
MARGIN = 12
MOST_FRAMES = 60
MILLISECONDS = 100  # per frame
LAST_MILLISECONDS = 3_000
BACKGROUND = "#ffffff"
HIGHLIGHT = "#c9f2d0"
COLORS = {WRITTEN: "#202020", NEW: "#005a1c", EMPTY: "#b4b4b4"}
PALETTE = 16  # colors, with those of the smooth edges of letters


class Recording:
    """The steps of a text, of which a GIF shows at most 60."""

    def __init__(self, path: Path, template: Template):
        self.path = path
        self.template = template
        self.texts: list[Tensor] = []

    def show(self, ids: Tensor) -> None:
        """Add the text `ids` `[length]`, as it is before the first step or after the next one."""
        self.texts.append(ids)

    def finish(self, ids: Tensor) -> None:
        """Write the GIF, with the finished text `ids` `[length]` and a pause at its end. Raises
        OSError."""
        # the second time without highlights
        texts = [*self.texts[:: -(-len(self.texts) // MOST_FRAMES)], ids, ids]
        pages = []
        before = texts[0]
        for text in texts:
            pages.append(wrap(cells(text, before, self.template), COLUMNS))
            before = text

        height = max(map(len, pages))
        images = [picture(lines, height) for lines in pages]
        # blanks; new characters; written ones
        examples = [np.asarray(images[i]) for i in (0, len(images) // 2 - 1, -1)]
        palette = Image.fromarray(np.concatenate(examples)).quantize(PALETTE)
        first, *rest = [
            image.quantize(palette=palette, dither=Image.Dither.NONE)
            for image in images
        ]
        durations = [MILLISECONDS] * len(rest) + [LAST_MILLISECONDS]
        file = BytesIO()
        first.save(
            file, "GIF", save_all=True, append_images=rest, duration=durations, loop=0
        )
        write_atomically(self.path, file.getvalue())


def picture(lines: list[list[Cell]], height: int) -> Image.Image:
    """An image of `height` lines of text, 64 columns wide."""
    file = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSansMono.ttf"
    font = ImageFont.truetype(file, FONT_SIZE)
    advance = font.getlength("M")
    size = (round(COLUMNS * advance) + 2 * MARGIN, height * LINE + 2 * MARGIN)
    image = Image.new("RGB", size, BACKGROUND)
    drawing = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        column = 0
        y = MARGIN + row * LINE
        for cell in line:
            left = MARGIN + round(column * advance)
            right = MARGIN + round((column + cell.columns) * advance)
            if cell.kind == NEW:
                drawing.rectangle((left, y, right - 1, y + LINE - 1), fill=HIGHLIGHT)
            drawing.text((left, y), cell.character, fill=COLORS[cell.kind], font=font)
            column += cell.columns

    return image
