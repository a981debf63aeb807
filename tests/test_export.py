"""ONNX files: whole, and the same in onnxruntime as in the equations."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from neocog.evaluation.timing import digit_boxes, made_page
from neocog.network.decision import answers
from neocog.network.lines import columns, log_likelihoods
from neocog.network.model import Model
from neocog.network.onnx import lines_to_onnx, model_to_onnx
from neocog.network.reference import respond, respond_line
from neocog.network.registry import find_model
from neocog.network.u0 import u0_from_digits
from neocog.vision import finder
from neocog.vision.finder_model import OpenCV, load_finder
from neocog.vision.finder_onnx import finder_to_onnx
from tests.support import digit_strip, digits_of, run, tiny_lines, tiny_model

ROOT = Path(__file__).parent.parent

onnx = pytest.importorskip("onnx", reason="needs neocog[onnx]")
ort = pytest.importorskip("onnxruntime", reason="needs neocog[onnx]")


def session(data: bytes) -> "ort.InferenceSession":
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    return ort.InferenceSession(data, providers=["CPUExecutionProvider"])


def outputs(network: "ort.InferenceSession", **given: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip((o.name for o in network.get_outputs()), network.run(None, given), strict=True))


REJECTING = replace(tiny_model(), labels=np.array([0, 1, 2, 10, 4, 5, 6, 7, 8, 9]), psi="ratio")


@pytest.mark.parametrize("model", [tiny_model(), REJECTING], ids=["sqrt", "ratio, rejecting"])
def test_every_layer_and_the_answers(model: Model) -> None:
    digits = np.concatenate([digits_of("0123456789"), np.zeros((1, 28, 28), np.uint8)])
    got = outputs(session(model_to_onnx(model, maps=True)), digits=digits)
    want = respond(u0_from_digits(digits), model)
    assert set(got) == {*want, "label", "p", "scores"}
    for layer, maps in want.items():
        assert got[layer].shape == maps.shape
        assert np.abs(got[layer] - maps).max() <= 2e-5 * np.abs(maps).max(), layer
    answer = answers(want["UC4"][:, :, 0, 0], temperature=model.temperature)
    np.testing.assert_array_equal(got["label"], answer.label)
    np.testing.assert_allclose(got["p"], answer.p, atol=1e-4)


@pytest.mark.parametrize("width", [144, 130, 17])
def test_every_layer_of_a_strip_and_the_log_likelihoods(width: int) -> None:
    model = replace(tiny_lines(), temperature=1.5)
    network = session(lines_to_onnx(model, maps=True))
    ink = np.stack([digit_strip()[:, :width], np.zeros((48, width), np.float32)]) * np.float32(1.1)
    got = outputs(network, ink=ink)
    for i, strip in enumerate(ink):
        want = dict(respond_line(strip, model))
        logs = log_likelihoods(want["Z"], 1.5)[: columns(width)]
        assert set(got) == {*want, "log_likelihoods"}
        for layer, maps in {**want, "log_likelihoods": logs}.items():
            assert got[layer][i].shape == maps.shape
            assert np.abs(got[layer][i] - maps).max() <= 2e-5 * np.abs(maps).max(), layer
    assert network.get_modelmeta().custom_metadata_map == {"model": model.id, "alphabet": model.alphabet}


def test_finder() -> None:
    page = made_page(digits_of("0123456789"))[:, :-7]  # a side that is no multiple of 16
    model, settings = load_finder(find_model("finder")), finder.FinderSettings()
    boxes, scores, kinds = session(finder_to_onnx(model)).run(None, {"grey": page})
    padded = np.zeros([-(-side // 16) * 16 for side in page.shape], np.float32)
    padded[: page.shape[0], : page.shape[1]] = finder.normalised(page)
    want = finder.decode(OpenCV(model)(padded), settings)
    want = finder.merged(want[want.scores >= settings.score], settings)
    assert len(want) >= 10
    np.testing.assert_allclose(boxes, want.boxes, atol=0.01)
    np.testing.assert_allclose(scores, want.scores, atol=1e-4)
    np.testing.assert_array_equal(kinds, want.kinds)
    assert (finder.overlaps(boxes, digit_boxes(10))[1].max(axis=0) > 0.9).all()


def test_command_and_the_example_of_the_page(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert "opset 13" in run("export", "neocog-small", "-o", "neocog.onnx").stdout
    assert [run("export", "finder", *how).exit_code for how in ((), (), ("--force",))] == [0, 2, 0]
    assert "--force" in run("export", "finder").stderr
    tiny_lines().save(tmp_path / "my.safetensors")
    assert "my.onnx: tiny-lines@" in run("export", tmp_path / "my.safetensors").stdout
    assert session((tmp_path / "my.onnx").read_bytes()).get_inputs()[0].shape == ["B", 48, "w"]
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "photo.jpg", tmp_path / "docs")
    page = (ROOT / "docs" / "look-inside.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(import numpy.*?onnxruntime.*?)```", page, re.DOTALL)
    exec(example, {})
    assert capsys.readouterr().out == "20619\n7384\n055192\n"
