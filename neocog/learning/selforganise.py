"""Self-organisation of US2 and US3: the rule of 2003, and add-if-silent of 2013."""

from collections.abc import Iterable
from typing import Any

from neocog.learning.plane import Array, Planes, Windows, local_winners, veto
from neocog.network.arrays import array_module
from neocog.network.spec import SSpec


def learn(
    maps: Iterable[Array],
    spec: SSpec,
    *,
    threshold: float,
    cut: float = 0.55,
    limit: int | None = None,
    winners_learn: bool = True,
) -> Planes:
    """Let the planes of one S-layer be born and grow by the rule of Fukushima (2003).

    For each digit: (1) the layer responds at its learning threshold; at each place the strongest
    plane wins if nothing stronger lies within radius 3.1; each plane's strongest winner is its
    seed cell, and the plane adds what that cell sees to its reference vector. (2) The layer
    responds again and vetoes its surroundings in the seed-selecting plane; (3) while anything is
    left there, a new plane is born at its maximum, responds and vetoes in turn.

    Without ``winners_learn`` (1) is left out: planes are born where every other is silent and never
    change (add-if-silent, Fukushima 2013).

    Parameters
    ----------
    maps : iterable of arrays, shape (H, W, K')
        The layer before, one digit after another.
    spec : SSpec
    threshold : float
        Learning threshold.
    cut : float
        Share of the seed-selecting plane's maximum that counts as nothing (not published for
        digits; 0.4 for letters).
    limit : int, optional
        Planes to stop at; None lets learning decide.
    """
    planes: Planes | None = None
    for u in maps:
        if planes is None:
            planes = Planes(u.shape[2], spec, threshold=threshold, xp=array_module(u))
        if limit is not None and len(planes) >= limit and not winners_learn:
            break  # nothing can change any more
        windows = Windows(u, spec)
        if not len(windows.cells):
            continue
        if winners_learn and len(planes):
            _winners_learn(planes, windows)
        _births(planes, windows, cut, limit)
    assert planes is not None
    return planes


def _winners_learn(planes: Planes, windows: Windows) -> None:
    response = planes.respond(windows.seen, windows.v)
    xp = array_module(response)
    strongest, plane_of = response.max(axis=1), response.argmax(axis=1)
    winner = local_winners(windows.map(strongest)).ravel()[windows.cells]
    places = xp.flatnonzero(winner)
    if not len(places):
        return
    # strongest winner of each plane: sort by response, keep the first of every plane
    order = places[xp.argsort(-strongest[places])]
    learned: set[int] = set()
    for k, cell in zip(map(int, plane_of[order]), order, strict=True):
        if k not in learned:
            learned.add(k)
            planes.learn(k, windows.seen[cell])


def _births(planes: Planes, windows: Windows, cut: float, limit: int | None) -> None:
    xp = array_module(windows.seen)
    seed = xp.maximum(windows.seed - cut * windows.seed.max(), 0)
    if len(planes):
        response = planes.respond(windows.seen, windows.v).sum(axis=1)
        seed = _vetoed(seed, windows, response)
    while limit is None or len(planes) < limit:
        cell = int(seed.argmax())
        if not seed[cell] > 0:
            break
        k = planes.add(windows.seen[cell])
        response = planes.respond(windows.seen, windows.v, first=k)[:, 0]
        seed = _vetoed(seed, windows, response)
        seed[cell] = 0


def _vetoed(seed: Any, windows: Windows, response: Any) -> Any:
    forbidden = veto(windows.map(response)).ravel()[windows.cells]
    return array_module(seed).maximum(seed - forbidden, 0)
