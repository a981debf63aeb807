"""UC4 and the decision: how ``kernels/decide.cu`` is specialised, fed and launched."""

import numpy as np

from neocog.cuda.kernel import Array, Kernel, Launch, Place, Step, up

_HELD = 8_000  # responses of a digit that shared memory holds, at most


class Decide(Step):
    """Answers (B, 16) float32 from US4: the strongest plane of each label.

    Columns 0 .. 9 are the scores of the labels, 10 the label (-1: none), 11 the margin, 12 the
    probability, the others 0; see :class:`neocog.network.decision.Answers`.
    """

    def __init__(self, *place: *Place) -> None:
        machine, model, _, layouts, _ = place
        self.reads, self.writes = "US4", "answers"
        self._source = layouts["US4"]
        self._counts = np.bincount(model.labels, minlength=model.classes)
        starts = np.concatenate([[0], np.cumsum(self._counts)])
        order = np.argsort(model.labels, kind="stable")
        #: Where each label's planes start, planes by label.
        self._tables = tuple(machine.xp.asarray(table.astype(np.int32)) for table in (starts, order))
        self._temperature = np.float32(model.temperature)

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        s, classes = self._source, len(self._counts)
        responses = s.width**2 * s.channels
        held = responses <= _HELD
        defines = (
            ("PLACES", s.width**2), ("CHANNELS", s.channels), ("PLANES", s.planes),
            ("CLASSES", classes), ("MOST", int(self._counts.max())), ("HELD", int(held)),
        )  # fmt: skip
        words = 16 + held * responses + up(s.planes, 4)
        kernel = Kernel("decide.cu", "decide", defines, 32 * classes, 4 * words, registers=96)
        return [Launch(kernel, (batch, 1, 1), (source, target, *self._tables, self._temperature))]
