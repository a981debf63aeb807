"""What a benchmark keeps, starts, variants and marks: read again where it is the same alone."""

from argparse import Namespace
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")

from experiments.learning.finetune import Job, start_of
from experiments.learning.pools import pools_of
from neocog.errors import UsageError
from neocog.learning.datasets import open_digits
from neocog.learning.mix import Hand, Mix
from neocog.learning.settings import Settings
from tests.test_cli import write_idx

QUICK = Settings(pool=30, batch=20, marks=0.2, variants=0.2)


def test_pools_are_drawn_anew_where_others_are_wanted(tmp_path: Path) -> None:
    digits = open_digits("sklearn", split="train")
    shown, kept = Mix((Hand(digits[:60]),)), Mix((Hand(digits[60:100]),))
    first = pools_of(tmp_path, QUICK, shown, kept, marks=True)
    (path,) = tmp_path.iterdir()
    again = pools_of(tmp_path, replace(QUICK, marks=0.3, rate=1.0), shown, kept, marks=True)
    assert list(tmp_path.iterdir()) == [path]  # only how many are shown is another
    for name, array in asdict(first).items():
        np.testing.assert_array_equal(array, getattr(again, name))
    assert (len(first.variants), len(first.marks)) == (30, 30)

    def sizes(digits: object, marks: bool = True, **changes: float) -> tuple[int, int]:
        settings = replace(QUICK, **changes)  # type: ignore[arg-type]
        pools = pools_of(tmp_path, settings, digits, kept, marks=marks)
        return len(pools.variants), len(pools.marks)

    assert sizes(shown, variants=0.0) == (0, 30)
    assert sizes(shown, marks=False) == (30, 0)
    assert sizes(shown, pool=12) == (12, 12)
    assert sizes(Mix((Hand(digits[:5]),))) == (20, 20)  # four times a digit at most
    assert sizes(shown, seed=1) == (30, 30)
    assert len(list(tmp_path.iterdir())) == 6


def test_a_file_of_pools_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = Mix((Hand(open_digits("sklearn", split="train")[:60]),))

    def fails(stream: object, **arrays: object) -> None:
        stream.write(b"half")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", fails)
    with pytest.raises(KeyboardInterrupt):
        pools_of(tmp_path, QUICK, digits, digits, marks=True)
    assert not list(tmp_path.iterdir())


def test_a_kept_start_has_the_planes_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neocog.learning.start.MARKS", 30)
    (tmp_path / "mnist").mkdir()
    write_idx(tmp_path / "mnist", "train", 60)
    args, job = Namespace(data=tmp_path, reject=1, sets=["mnist"]), Job("4/6/10", 0)
    start = start_of(job, tmp_path, args)
    assert start.planes[2] == 11
    assert start_of(job, tmp_path, args).id == start.id
    for reject, seed in ((2, 0), (1, 1)):
        args.reject = reject
        with pytest.raises(UsageError, match=f"not (reject {reject}|seed {seed})"):
            start_of(Job("4/6/10", seed), tmp_path, args)
