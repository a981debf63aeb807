"""UC4 and the decision: how ``kernels/decide.cu`` is specialised, fed and launched."""

from math import comb
from typing import ClassVar, get_args

import numpy as np

from neocog.cuda.kernel import Array, Kernel, Launch, up
from neocog.cuda.steps import Place, Step, Work
from neocog.network.decision import PAIR_PLANES, TRIPLE_PLANES, Decision
from neocog.network.model import Rule

#: RULE in the kernel.
_RULES: dict[Rule, int] = {"strongest": 0, "pairs": 1, "triples": 2, "linear": 3}
#: Most responses of a digit, and distances of reference vectors, that shared memory holds.
_HELD, _HELD_APART = 8_000, 4_000
assert set(_RULES) == set(get_args(Rule))


class Decide(Step):
    """Answers (B, 16) float32 from US4, by the model's rule.

    Columns 0 .. 9 are the scores of the labels, 10 the label (-1: none), 11 the margin, 12 the
    probability, the others 0; see :class:`neocog.network.decision.Answers`.
    """

    version: ClassVar[str] = "warps"

    def __init__(self, *place: *Place) -> None:
        machine, model, _, layouts, _ = place
        self.reads, self.writes = "US4", "answers"
        self._source, self._rule = layouts["US4"], model.rule
        counts = np.bincount(model.labels, minlength=model.classes)
        self._counts = counts
        starts = np.concatenate([[0], np.cumsum(counts)])
        order = np.argsort(model.labels, kind="stable")
        gains = model.gains if model.gains is not None else np.zeros(1, dtype=np.float32)
        apart = np.zeros((1, 1, 1))
        if model.rule in ("pairs", "triples"):
            apart = Decision(model)._apart  # the very numbers that the CPU decides by
        gram = 1 - apart if model.rule == "triples" else np.zeros((1, 1, 1))
        #: Where each label's planes start, planes by label, gains, distances, products.
        self._tables = tuple(
            machine.xp.asarray(np.ascontiguousarray(table, dtype=dtype))
            for table, dtype in (
                (starts, np.int32),
                (order, np.int32),
                (gains, np.float32),
                (apart, np.float32),
                (gram, gram.dtype),
            )
        )
        self._theta = np.float32(model.s[3].threshold)
        self._temperature = np.float32(model.temperature)

    def kernel(self) -> Kernel:
        """Return the kernel, specialised for the model's planes and rule."""
        s, most, classes = self._source, int(self._counts.max()), len(self._counts)
        limit = TRIPLE_PLANES if self._rule == "triples" else PAIR_PLANES
        interpolated = self._rule in ("pairs", "triples")
        responses, apart = s.width**2 * s.channels, up(classes * most**2, 4)
        held, held_apart = responses <= _HELD, interpolated and apart <= _HELD_APART
        defines = (
            ("PLACES", s.width**2),
            ("CHANNELS", s.channels),
            ("PLANES", s.planes),
            ("CLASSES", classes),
            ("MOST", most),
            ("RULE", _RULES[self._rule]),
            ("LIMIT", limit),
            ("HELD", int(held)),
            ("HELD_APART", int(held_apart)),
        )
        words = 16 + held * responses + up(s.planes, 4) + held_apart * apart
        words += interpolated * classes * (most + limit) * 2
        return Kernel("decide.cu", "decide", defines, 32 * classes, 4 * words, registers=96)

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        """One launch, a block for each digit."""
        args = (source, target, *self._tables, self._theta, self._temperature)
        return [Launch(self.kernel(), (batch, 1, 1), args)]

    def work(self) -> Work:
        """A comparison a response; pairs (12 operations each) and triangles (40) if looked at."""
        s = self._source
        flops = float(s.size**2 * s.planes)
        for count in map(int, self._counts):
            if self._rule in ("pairs", "triples"):
                flops += 12.0 * comb(min(count, PAIR_PLANES), 2)
            if self._rule == "triples":
                flops += 40.0 * comb(min(count, TRIPLE_PLANES), 3)
        return Work(flops, float(s.size**2 * s.planes * 4 + 64))


#: By name.
VERSIONS: dict[str, type[Decide]] = {Decide.version: Decide}
