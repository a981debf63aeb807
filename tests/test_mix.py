"""Several sets with weights, strokes drawn by any pen, writers kept apart."""

import gzip

import cv2
import numpy as np
import pytest

from neocog.errors import InputError, UsageError
from neocog.learning.calibrate import best_temperature
from neocog.learning.datasets import Digits, open_digits
from neocog.learning.drawing.marks import written
from neocog.learning.drawing.strokes import FILE, read_strokes
from neocog.learning.mix import Hand, Mix, open_mix
from tests.support import digits_of, write_digits

LABELS = np.tile(np.arange(10), 6)


def write_set(folder, labels, writers=None):
    """IDX files of a training part; each picture holds its place in its first two pixels."""
    folder.mkdir()
    images = digits_of("0123456789")[labels].copy()
    images[:, 0, 0], images[:, 0, 1] = np.arange(len(labels)), 255
    write_digits(folder, "train", images, labels)
    if writers is not None:
        (folder / "train-writers.txt.gz").write_bytes(gzip.compress("\n".join(writers).encode()))
    return folder


def write_strokes(folder, count):
    """One stroke a digit, slanted more from digit to digit."""
    points = np.array([[[0, 0], [10 * i, 1000]] for i in range(count)], np.int16).reshape(-1, 2)
    starts = np.arange(count + 1, dtype=np.int32)
    np.savez(folder / FILE, points=points, stroke_start=2 * starts, sample_start=starts)


def places(digits):
    return digits.images[:, 0, 0].tolist()


@pytest.mark.parametrize(("writers", "kept"), [
    ([f"w{9 - i // 6}" for i in range(60)], range(48, 60)),  # ten, in the order in which they begin
    (["someone"] * 60, range(50, 60)),  # of one writer the last fifth of each label
])  # fmt: skip
def test_the_last_fifth_of_the_writers_is_kept_apart(tmp_path, writers, kept):
    folder = write_set(tmp_path / "a", LABELS, writers)
    assert places(open_digits(folder, split="learning")) == list(range(kept.start))
    assert places(open_digits(folder, split="validation")) == list(kept)
    assert len(open_digits(folder, split="train")) == 60
    folder = write_set(tmp_path / "b", LABELS, writers[:59])
    with pytest.raises(InputError, match="59 writers of 60 digits, expected one each"):
        open_digits(folder, split="learning")


def test_sets_are_shown_as_often_as_their_weights_say(tmp_path):
    one, other = write_set(tmp_path / "a", LABELS), write_set(tmp_path / "b", np.tile(LABELS, 4))
    mix = open_mix([f"{one}:3", str(other)], split="train")
    assert (mix.sizes, mix.names) == ((60, 240), ("a", "b"))
    which, at = mix.draw(4000, np.random.default_rng(1))
    assert np.mean(which == 0) == pytest.approx(0.75, abs=0.03)
    assert at[which == 0].max() < 60 <= at.max()
    assert mix.digest not in (open_mix([str(one), str(other)], split="train").digest, mix.first(100).digest)
    assert np.array_equal(mix.first(100).images, mix.first(100).images)
    alone = open_mix([str(one)], split="train")
    assert places(alone.first(7).hands[0].digits) == list(range(7))
    assert alone.first(None) is alone


def test_a_weight_is_above_0_and_a_place_may_hold_a_colon(tmp_path):
    place = write_set(tmp_path / "a:2", LABELS)
    assert open_mix([str(place)], split="train").hands[0].weight == 1
    for weight in ("0", "-1", "inf", "nan"):
        with pytest.raises(UsageError, match="expected a weight above 0"):
            open_mix([f"{place}:{weight}"])
    with pytest.raises(InputError, match="nowhere:x: no such file or folder"):
        open_mix(["nowhere:x"])


def test_each_set_counts_the_same_where_a_temperature_is_set():
    sure = np.full((1000, 10), 0.0, np.float32)
    sure[:, 0] = 1  # always right
    doubt = sure[:10].copy()  # right as often as wrong

    def mix(*sizes):
        sets = [np.zeros(sizes[0], np.int64), np.arange(sizes[1]) % 2]
        return Mix(tuple(Hand(Digits(np.zeros((len(s), 28, 28), np.uint8), s, "d")) for s in sets))

    few = best_temperature(np.concatenate([sure[:10], doubt]), mix(10, 10))
    assert few == best_temperature(np.concatenate([sure, doubt]), mix(1000, 10))


def test_digits_come_with_the_paths_of_their_pens(tmp_path):
    folder = write_set(tmp_path / "a", LABELS, [f"w{i // 6}" for i in range(60)])
    write_strokes(folder, 60)
    hand = open_mix([str(folder)], split="validation").hands[0]
    assert hand.rows.tolist() == places(hand.digits)
    (line,) = hand.strokes.lines(int(hand.rows[0]))
    assert np.ptp(line, axis=0) == pytest.approx((0.48, 1))
    write_strokes(folder, 59)
    with pytest.raises(InputError, match="59 digits, not those of the pictures beside it"):
        open_mix([str(folder)], split="validation")
    for broken in (b"", b"PK\x03\x04 no zip", b"\x93NUMPY"):
        (tmp_path / FILE).write_bytes(broken)
        with pytest.raises(InputError, match="not a file of pen strokes"):
            read_strokes(tmp_path / FILE)
    np.savez(tmp_path / FILE, points=np.zeros((3, 2), np.int16), stroke_start=[0, 4], sample_start=[0, 1])
    with pytest.raises(InputError, match="do not fit together"):
        read_strokes(tmp_path / FILE)


@pytest.mark.parametrize("count", [0, 1, 30])
def test_any_path_is_written_by_any_pen(count):
    lines = [np.stack([np.zeros(count), np.linspace(-0.5, 0.5, count)], axis=1)] * (count > 0)
    inks = [written(lines, np.random.default_rng(seed)) for seed in range(40)]
    assert np.isfinite(inks).all()
    if count > 1:
        assert min(ink.max() for ink in inks) > 0.2
        widths = [(ink > 0.3).sum() for ink in inks]
        assert max(widths) > 3 * min(widths)  # fine pens and broad ones


def test_ends_miss_and_overshoot():
    """A ring that closes in the path does not always close when it is written again."""
    turn = np.linspace(0, 2 * np.pi, 60)
    ring = [np.stack([np.sin(turn), np.cos(turn)], axis=1) / 2]
    paper = [(written(ring, np.random.default_rng(k)) < 0.3).astype(np.uint8) for k in range(60)]
    assert 20 < sum(cv2.connectedComponents(one)[0] > 2 for one in paper) < 60
