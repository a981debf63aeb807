"""Made pages of words for measuring: letters that are no digits, by hand and printed."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError
from neocog.learning.pages.drawn import WORDS
from neocog.learning.pages.forms import photographed

Rng = np.random.Generator

FACES = {
    "by hand": "dkg Breip femkeklaver Rufscript010 SteveHand Delphine Kristi Humor-Sans "
               "AmaticSC-Regular BecauseWeBuild-Regular BecauseWeLearn-Regular "
               "BecauseWeMentor-Regular BecauseWeOrganize-Regular",
    "printed": "Caladea-Regular EBGaramond12-Regular LinLibertine_R LinLibertine_RB LinBiolinum_R "
               "Inconsolata Cantarell-Regular OpenSans-Regular Lato-Regular",
}  # fmt: skip
"""Typefaces by the names of their files; no training page is printed in one of them.

Debian's packages fonts-dkg-handwriting, -breip, -femkeklaver, -rufscript, -sjfonts, -kristi,
-humor-sans, -bwht, -ebgaramond, -linuxlibertine, -inconsolata, -cantarell, -open-sans and -lato
have them; font-amatic-sc and font-caladea are on PyPI.
"""


def faces(folder: Path) -> dict[str, list[Path]]:
    """Files of `FACES` in a folder, by kind; kinds without any are left out."""
    files = {file.stem: file for file in sorted(folder.glob("*.[to]tf"))}
    found = {kind: [files[name] for name in names.split() if name in files]
             for kind, names in FACES.items()}  # fmt: skip
    return {kind: some for kind, some in found.items() if some}


def make_letters(face: Path, rng: Rng) -> tuple[NDArray[np.uint8], str]:
    """Make one page of words, each a little off its line.

    Parameters
    ----------
    face : Path
        A typeface.
    rng : numpy Generator

    Returns
    -------
    ndarray of uint8, shape (H, W)
        The photograph, grey.
    str
        The words, parted by spaces.

    Raises
    ------
    InputError
        If the typeface cannot be read.
    """
    from PIL import Image, ImageDraw, ImageFont

    size = int(rng.integers(24, 80))
    try:
        font = ImageFont.truetype(str(face), size)
    except OSError:
        raise InputError(f"{face} is no typeface that can be read") from None
    sheet = Image.new("L", (960, 720), 0)
    draw, words, y = ImageDraw.Draw(sheet), list[str](), rng.uniform(20, 60)
    while y + 1.3 * size < 720 and sum(map(len, words)) < 50:
        x = rng.uniform(20, 100)
        while True:
            word = str(rng.choice(WORDS))
            case = rng.random()
            word = word.upper() if case > 0.85 else word.capitalize() if case > 0.6 else word
            wide = float(font.getlength(word))
            if len(word) < 2 or x + wide > 930:
                break
            draw.text((x, y + rng.normal(0, 0.04 * size)), word, fill=255, font=font)
            words.append(word)
            x += wide + size * rng.uniform(0.3, 0.7)
        y += size * rng.uniform(1.3, 1.9)
    cover = np.asarray(sheet, np.float32) / 255
    if rng.random() < 0.5:  # the line of a broader pen
        cover = np.asarray(cv2.dilate(cover, np.ones((2, 2), np.uint8)), np.float32)
    paper = rng.uniform(175, 245)
    image = paper + (rng.uniform(10, 90) - paper) * cover
    return photographed(image.astype(np.float32), rng), " ".join(words)
