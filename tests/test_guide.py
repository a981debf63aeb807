"""A convolutional network that guides, and what of its answers a neocognitron learns."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
torch.set_num_threads(1)

from experiments.learning.guide_network import Convolutional, Guide, load_guide, save_network  # noqa: E402
from neocog.errors import ModelError  # noqa: E402
from neocog.learning.datasets import open_digits  # noqa: E402
from neocog.learning.finetune import Finetuner  # noqa: E402
from neocog.learning.mix import Mix  # noqa: E402
from neocog.learning.recipes import recipe_of, start_model  # noqa: E402
from neocog.learning.settings import PRESETS, Settings  # noqa: E402
from neocog.network.model import Model  # noqa: E402
from neocog.network.registry import find_model  # noqa: E402

QUICK = Settings(
    epochs=2, batch=20, rate=0.03, pool=30, marks=0.2, variants=0.0, mean=0.5, precision="fp32",
    augmentation=PRESETS["none"], soft_share=0.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def parts() -> tuple[Mix, Mix]:
    found = open_digits("sklearn", split="train")
    learned, kept = found[:100], found[100:140]
    return Mix.of(learned.images, learned.labels), Mix.of(kept.images, kept.labels)


@pytest.fixture(scope="module")
def start(parts: tuple[Mix, Mix]) -> Model:
    return start_model(recipe_of("finetuned", "4/6/10"), parts[0], reject=1, count=60)


def test_a_guide_is_kept_and_answers_for_several(tmp_path: Path) -> None:
    torch.manual_seed(0)
    networks = [Convolutional(11, 4) for _ in range(2)]
    paths = [tmp_path / f"{k}.safetensors" for k in range(2)]
    for network, path in zip(networks, paths, strict=True):
        save_network(network, path)
    u0 = torch.rand(3, 65, 65)
    found = load_guide(paths, "cpu")(u0)
    assert found.shape == (3, 11)
    own = [Guide([network], "cpu")(u0) for network in networks]
    torch.testing.assert_close(found, (own[0] + own[1]) / 2, atol=0.02, rtol=0.02)
    np.testing.assert_allclose(own[0].exp().sum(dim=1), 1, rtol=1e-5)
    paths[0].write_bytes(b"no")
    for path in (paths[0], tmp_path / "none.safetensors"):
        with pytest.raises(ModelError, match="no guide that can be read"):
            load_guide([path], "cpu")


def test_a_model_guides_if_it_knows_what_is_no_digit(tmp_path: Path, start: Model) -> None:
    start.save(tmp_path / "model.safetensors")
    u0 = torch.rand(3, 65, 65)
    found = load_guide([tmp_path / "model.safetensors"], "cpu")(u0)
    assert found.shape == (3, 11)
    np.testing.assert_allclose(found.exp().sum(dim=1), 1, rtol=1e-5)
    with pytest.raises(ModelError, match="does not know what is no digit"):
        load_guide([find_model("fukushima")], "cpu")


def test_a_network_follows_its_guide(start: Model, parts: tuple[Mix, Mix]) -> None:
    """A guide that calls everything a 3 is followed as far as it is told to count."""

    def says_three(u0: Any) -> Any:
        return 20.0 * torch.nn.functional.one_hot(torch.full((len(u0),), 3), 11)

    settings = replace(QUICK, guided=0.9, heat=1.0, last=True, rate=0.1)

    def threes(guided: Settings, guide: object) -> float:
        run = Finetuner(start, *parts, guided, guide=guide)  # type: ignore[arg-type]
        run.run()
        return float((run._scores(run.network, run.batches.shown).argmax(axis=1) == 3).mean())

    assert threes(settings, says_three) > 0.6
    assert threes(settings, None) < 0.4
    assert threes(replace(settings, guided=0.0), says_three) < 0.4
    assert threes(replace(settings, agreeing=True), says_three) < 0.4
