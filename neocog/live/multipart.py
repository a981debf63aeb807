"""An MJPEG stream taken apart: bytes in, pictures out.

The stream is a response without end, ``multipart/x-mixed-replace``: a line with the boundary,
header lines, an empty line, one JPEG, and again. Where a part tells its length that is believed;
else its picture ends before the next boundary.
"""

MOST = 2**25
"""Bytes of a picture, or of what stands between two; a stream that has more is none."""


class Multipart:
    """Collects the parts of a stream.

    Parameters
    ----------
    boundary : str
        As the response's content type names it; servers disagree on whether it has its dashes.
    """

    def __init__(self, boundary: str) -> None:
        self._boundary = b"--" + boundary.strip('"').removeprefix("--").encode("latin-1")
        self._bytes = bytearray()
        self._length: int | None = None
        self._inside = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes of the stream; return the pictures that they complete.

        Raises
        ------
        ValueError
            If the stream is no MJPEG stream.
        """
        self._bytes += data
        found = []
        while (part := self._next()) is not None:
            if part:
                found.append(part)
        if len(self._bytes) > MOST:
            raise ValueError("no picture in the last 32 MiB")
        return found

    def _next(self) -> bytes | None:
        """Return the next part, or None while it is not complete."""
        if not self._inside and not self._headers():
            return None
        if self._length is not None:
            if len(self._bytes) < self._length:
                return None
            end = rest = self._length
        else:
            end = rest = self._bytes.find(b"\n" + self._boundary)
            if end < 0:
                return None
            if self._bytes[end - 1 : end] == b"\r":
                end -= 1
        part = bytes(self._bytes[:end])
        del self._bytes[:rest]
        self._inside = False
        return part

    def _headers(self) -> bool:
        """Take a part's headers off the bytes, if they are complete."""
        start = self._bytes.find(self._boundary)
        if start < 0:
            return False
        ends = [
            (at, len(mark))
            for mark in (b"\r\n\r\n", b"\n\n")
            if (at := self._bytes.find(mark, start)) >= 0
        ]
        if not ends:
            return False
        at, length = min(ends)
        self._length = _told_length(bytes(self._bytes[start:at]))
        del self._bytes[: at + length]
        self._inside = True
        return True


def _told_length(headers: bytes) -> int | None:
    for line in headers.splitlines():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
            if not 0 <= length <= MOST:
                raise ValueError(f"a picture of {length} bytes")
            return length
    return None
