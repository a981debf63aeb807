"""Pictures as the bytes of a file."""

import io

from PIL import Image

from tests.support import page


def file_of(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def scene(width: int = 60, height: int = 40, mode: str = "L") -> Image.Image:
    """White paper with a dark block at its upper left."""
    picture = Image.new("L", (width, height), 255)
    picture.paste(20, (5, 5, 20, 15))
    return picture.convert(mode)


def page_file(*texts: str, kind: str = "PNG", mode: str = "L") -> bytes:
    """Pages of digits in one file."""
    first, *more = (Image.fromarray(page(text)).convert(mode) for text in texts)
    several = {"save_all": True, "append_images": more} if more else {}
    return file_of(first, kind, **several)
