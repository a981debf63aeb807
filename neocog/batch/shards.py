"""A share of the inputs for each of several machines, told apart by names alone."""

import hashlib
import re
from dataclasses import dataclass

from neocog.errors import UsageError


@dataclass(frozen=True, slots=True)
class Shard:
    """Share ``number``, from 1, of ``count`` shares of the inputs.

    Which share an input belongs to follows from its key, the path relative to the folder or
    archive that was named: it is the same on every machine, wherever the folder lies there, and
    does not change when other inputs come or go.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read ``"I/N"``; UsageError if it is none of 1/N to N/N."""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise UsageError(f"shard '{text}': expected I/N, from 1/N to N/N, e.g. 2/8")
        return cls(int(found[1]), int(found[2]))

    def holds(self, key: str) -> bool:
        """Whether the input of this key is of this share: by the SHA-256 of the key."""
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.number - 1
