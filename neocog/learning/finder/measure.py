"""How well a finder finds: marks of made pages that are found, and what else it tells."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from neocog.learning.finder.boxes import compared
from neocog.learning.finder.networks import FinderNetwork, normalised
from neocog.learning.teacher.pool import Pages
from neocog.vision.finder import FinderSettings, decode, merged

Tensor = Any


@dataclass(frozen=True, slots=True)
class Score:
    """Counts over pages.

    Attributes
    ----------
    digits, found, false : int
        Digits that stand there; of them found; marks told as digits that are none.
    signs_as_digits, signs : int
        Signs told as digits, of so many.
    clean, empty : int
        Pages without digits of which nothing was told, of so many.
    """

    digits: int
    found: int
    false: int
    signs_as_digits: int
    signs: int
    clean: int
    empty: int

    def told(self) -> dict[str, float]:
        """Shares by name."""
        recall = self.found / max(self.digits, 1)
        precision = self.found / max(self.found + self.false, 1)
        return {
            "recall": recall,
            "precision": precision,
            "f1": 2 * recall * precision / max(recall + precision, 1e-9),
            "signs_as_digits": self.signs_as_digits / max(self.signs, 1),
            "clean": self.clean / max(self.empty, 1),
        }


def score_pages(
    network: FinderNetwork, pages: Pages, place: Any, *, settings: FinderSettings | None = None
) -> Score:
    """Find the digits of pages at the size they have, and compare."""
    settings = settings or FinderSettings()
    network.eval()
    total = np.zeros(7, np.int64)
    with torch.no_grad():
        for at in range(0, len(pages), 32):
            images = torch.from_numpy(pages.images[at : at + 32]).to(place)
            extents = torch.from_numpy(pages.extents[at : at + 32]).to(place)
            maps = network(normalised(images, extents)).float().cpu().numpy()
            for k in range(len(maps)):
                found = merged(decode(maps[k], settings), settings)
                total += compared(found[found.scores >= settings.score], pages.marks[at + k])
    return Score(*total.tolist())
