"""The line reader learns: its network is the equations, its runs go on, its command."""

from copy import deepcopy
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from neocog.errors import UsageError
from neocog.network.ctc import BLANK, best_path
from neocog.network.lines import load_lines
from neocog.network.reference import respond_line
from neocog.vision.strips import ink_of
from tests.support import digit_strip, tiny_lines

torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")

from neocog.learning import augment, lines  # noqa: E402
from neocog.learning.calibrate import line_bias  # noqa: E402
from neocog.learning.drawing.bank import by_width, drawn_lines  # noqa: E402
from neocog.learning.drawing.hands import load_hands  # noqa: E402
from neocog.learning.trainable import Response  # noqa: E402
from tests.test_learning_command import assert_refused, train  # noqa: E402

TINY = {"steps": 6, "columns": 1024, "kept": 2, "fresh": 80.0, "validation": 8, "inner": 8}
STRIP = np.pad(digit_strip(), ((0, 0), (0, 16)))


def network():
    """A network whose normalisations have values of their own."""
    torch.manual_seed(0)
    net = lines.LineNetwork(tiny_lines().digits, inner=12)
    for norm in (net.head[1], net.head[4]):
        for values in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            values.data.uniform_(0.5, 2)
    return net.eval()


@torch.no_grad()
def scores(net, strip=STRIP):
    return net(torch.from_numpy(strip)[None, None])[0].numpy()


def test_the_network_is_the_equations_and_a_file_goes_on_as_it_was():
    net, other = network(), lines.LineNetwork(tiny_lines().digits, inner=12).eval()
    want = respond_line(STRIP, net.line_model("m"))["Z"]
    np.testing.assert_allclose(scores(net), want, atol=1e-4 * np.abs(want).max())
    assert scores(net, STRIP[:, :157]).shape[1] == 52  # any width
    other.take(net.line_model("m"))
    assert other.folded
    other.normalise(torch.from_numpy(STRIP)[None, None])
    assert not torch.allclose(other.head[1].running_mean, torch.zeros(12))
    np.testing.assert_allclose(scores(other), scores(net), atol=1e-4)
    other.head[6].p = 0.0
    np.testing.assert_allclose(scores(other.train()), scores(net), atol=1e-4)


def test_slopes_of_s_cells():
    rng = torch.Generator().manual_seed(0)
    e, v = (torch.rand(2, planes, 4, 5, dtype=torch.float64, generator=rng) for planes in (3, 1))
    v[0, 0, 0] = 0  # silence
    given = (e + 0.2, v, torch.tensor([0.1, 0.2, 0.3]).double(), torch.tensor(0.7).double())
    for values in given:
        values.requires_grad_()
    assert torch.autograd.gradcheck(lambda *each: Response.apply(*each, 1e-3), given)
    layer, u = network().s[1], torch.rand(1, 16, 9, 12, generator=rng) ** 4
    layer.threshold.data -= 1.0  # so that more responds
    assert (layer(u) > 0).float().mean() > 0.1
    torch.testing.assert_close(layer(u), layer(u, rectified=False).relu())


def test_strips_are_those_of_the_reader():
    grey = np.random.default_rng(0).normal(0, 25, (3, 48, 128)).cumsum(2) / 4 + 128
    x = torch.from_numpy(grey).clamp(0, 255).round().float()[:, None]
    for one, want in zip(augment.strips(x, np.full(3, 128))[:, 0], map(ink_of, x[:, 0].numpy()), strict=True):
        np.testing.assert_allclose(one, want, atol=0.01)
        assert 0.2 < (want > 0).mean() < 0.6


def begun(hands_dir, folder, tell=str, **others):
    settings = lines.LineTraining(**TINY | others)
    torch.manual_seed(settings.seed)
    net = lines.LineNetwork(tiny_lines().digits, inner=12)
    net.take(tiny_lines())
    return lines.LineRun(net, hands_dir, folder, settings, workers=1, tell=tell)


def test_a_run_is_held_to_what_its_start_reads(hands_dir, model, tmp_path, monkeypatch):
    drawn = by_width(drawn_lines(load_hands(hands_dir), 60, seed=1))
    one = begun(hands_dir, tmp_path, held=5.0, rate=0.5)
    one.network.head[6].p = 0.0
    one.network.normalise(one._batch(drawn)[0])
    start, before = one.begun, deepcopy([one.network.state_dict(), one.optimiser.state_dict()])

    def losses(begun, read):
        monkeypatch.setattr(lines, "_READ", read)
        one.begun = begun
        one.network.load_state_dict(before[0])
        one.optimiser.load_state_dict(before[1])
        return [float(one._learn_from(drawn)) for one.step in range(2)]

    free, none, held = losses(None, 0.0), losses(start, 0.0), losses(start, 1e9)  # of no line, none, all
    assert none == pytest.approx(free, abs=1e-5)
    assert held[0] == pytest.approx(free[0], abs=1e-3)
    assert held[1] > free[1] + 0.05
    with pytest.raises(UsageError, match="is a model of digits"):
        lines.start(model, lines.LineTraining(held=1.0))


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(hands_dir, tmp_path, monkeypatch):
    def learned(folder, minutes=None):
        one = begun(hands_dir, tmp_path / folder, held=5.0)
        monkeypatch.setattr(lines, "time", SimpleNamespace(monotonic=lambda: 60.0 * one.step))
        one.learn(minutes=minutes)
        return one.step, (tmp_path / folder / "run.safetensors").read_bytes()

    monkeypatch.setattr(lines, "_READ", np.inf)
    monkeypatch.setattr(lines.LineRun, "score", lambda *_: {"exact": 0.0})
    whole, first = learned("whole"), learned("parts", 3)
    assert (whole[0], first[0], learned("parts")) == (6, 3, whole)


def test_own_lines_that_are_too_wide_are_told(hands_dir, tmp_path, monkeypatch):
    own, told = [(np.zeros((64, width), np.uint8), "1") for width in (999, 99)], []
    monkeypatch.setattr(lines, "own_lines", lambda *_: own)
    begun(hands_dir, tmp_path, told.append)
    assert told == ["1 of 2 own lines are wider than 544 columns: left out"]


@pytest.mark.slow
def test_the_command_keeps_a_run_goes_on_and_writes_a_model(hands_dir, model, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LineTraining", partial(lines.LineTraining, **TINY))
    place, words = tmp_path / "m.safetensors", ["--lines", "--start", model, "--steps", 2, "--seed", 5]
    first = train(hands_dir, place, *words, "--minutes", 0)
    assert (first.exit_code, first.stdout, place.exists()) == (0, "", False)
    assert "m.run keeps the run, 0 of 2 steps: the same command goes on with it" in first.stderr
    told, made = train(hands_dir, place, *words), load_lines(place)
    assert told.stdout == f"{place}  {made.id}  {place.stat().st_size:,} bytes\n"
    assert (made.name, 0.25 <= made.temperature <= 4) == ("m", True)
    assert [made.card[key] for key in ("recipe", "seed", "steps")] == ["lines", 5, 2]
    assert made.card["start"].startswith("tiny@")
    assert made.card["validation"].keys() == {"exact", "cer", "lines"}
    assert made.card["learned_from"]["lectaurep"] == 2
    assert "Lectaurep Repertoires (HTR-United, CC BY 4.0)" in made.card["data"]
    (tmp_path / "n").mkdir()
    again = train(hands_dir, tmp_path / "n/m.safetensors", *words, "--checkpoints", tmp_path / "m.run")
    assert "has finished and this is its model" in again.stderr
    assert (tmp_path / "n/m.safetensors").read_bytes() == place.read_bytes()
    assert_refused(train(hands_dir, place, *words, "--steps", 4), "(steps 2, not steps 4)")
    on = train(hands_dir, tmp_path / "on.safetensors", "--lines", "--start", place, "--steps", 1)
    assert on.exit_code == 0, on.output
    assert load_lines(tmp_path / "on.safetensors").card["start"] == made.id


def test_blank_that_is_too_likely_is_made_less_so():
    logp = np.full((40, BLANK + 1), -8.0, np.float32)
    logp[:, BLANK] = 0
    logp[10, 1] = logp[25, 2] = -1.5  # "12" is there, and blank is likelier
    assert best_path(logp) == ""
    bias = line_bias([logp] * 3, ["12"] * 3)
    assert best_path(logp + bias) == "12"
    assert bias[BLANK] < 0 < min(bias[1], bias[2])
