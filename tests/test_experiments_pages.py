"""The papers' experiments as a page: three figures, and sentences that follow the numbers."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.convpool import summary as convpool_summary
from experiments.harness import all as experiments
from experiments.slayer import summary as slayer_summary
from experiments.slayer.tables import missing
from experiments.winograd import summary as winograd_summary
from experiments.winograd.layers import LAYERS, PAPER_WAY, WAYS
from experiments.winograd.orders import order_words
from experiments.winograd.traffic import traffic
from neocog.evaluation.figures import Axis, Line, standalone

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
NAMES = ("convpool", "winograd", "slayer")
LINKS = {"figures": "figures", "full": "all.md"}


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    """What was measured."""
    return experiments.load([EXPERIMENTS / name / "results" / f"{name}.json" for name in NAMES])


@pytest.fixture
def results(stored: dict[str, Any]) -> dict[str, Any]:
    """The same, to be changed."""
    return copy.deepcopy(stored)


# -- the page --------------------------------------------------------------------------------------
def test_one_page_with_three_figures_links_to_all_tables(
    stored: dict[str, Any], tmp_path: Path
) -> None:
    files = experiments.write_page(stored, tmp_path / "docs" / "experiments.md")
    text = files[0].read_text()
    assert len(text.splitlines()) < 150
    assert len(re.findall(r"^!\[", text, re.MULTILINE)) == 3
    pages = [file for file in files if file.suffix == ".md"]
    assert [page.name for page in pages[1:]] == [f"{name}.md" for name in NAMES]
    for page in pages:
        words = page.read_text()
        assert "cannot be shown" not in words
        assert not re.search(r"\b(nan|None|inf)\b", words)
        links = re.findall(r"\]\(([^)]*)\)", words)
        assert links
        assert all((page.parent / link).is_file() for link in links)
        assert words.startswith("# ")
    assert set(files) == set((tmp_path / "docs").rglob("*.*"))


def test_what_the_papers_lack_and_what_was_not_measured_is_said(stored: dict[str, Any]) -> None:
    text = experiments.page(stored, more="experiments")
    assert text.count("not in our copy") >= 3
    found = stored["winograd"]
    found = found | {"layers": [row for row in found["layers"] if "halves" not in row["way"]]}
    full = experiments.full_page("winograd", found, figures="f", back="../e.md")
    assert "Counted but not measured: " in full
    assert "cudaLaunchKernel" not in full


def test_a_result_without_a_gpu_makes_a_page(tmp_path: Path) -> None:
    from experiments.convpool import experiment as convpool
    from experiments.winograd import experiment as winograd

    found: Any = {
        "convpool": convpool.run_on_cpu(log=str),
        "winograd": winograd.run_on_cpu(quick=True, save=str, log=str),
        "slayer": {"sections": {}, "digits": "d", "date": "2026", "command": "c", "model": "m"},
    }
    files = experiments.write_page(found, tmp_path / "page.md")
    text = files[0].read_text()
    assert text.count("ot measured on a GPU yet") >= 3
    assert "cannot be shown" not in text
    assert "![" not in text


def test_numbers_of_the_page_are_those_of_the_results(stored: dict[str, Any]) -> None:
    text = experiments.page(stored, more="experiments")
    rows = stored["slayer"]["sections"]["ladder"]["rows"]
    us = {
        (row["system"], row["stage"]): row["us"]["1"]
        for row in rows
        if row["planes"] == "26/78/70" and "us" in row
    }
    stages = [f"US{i}" for i in range(1, 5)]
    gain = sum(us["T1", s] for s in stages) / sum(us["T5", s] for s in stages)
    assert f"T5 is {gain:.1f} times as fast as T1" in text
    assert f"S1 ({us['T1', 'US1'] / us['T5', 'US1']:.2f})" in text
    (row,) = (
        row
        for row in stored["convpool"]["rows"]
        if (row["channels"], row["batch"], row["precision"]) == (512, 64, "fp32")
    )
    base = min(row["systems"][name]["us"] for name in ("naive", "winograd"))
    assert f"| {base / row['systems']['ours']['us']:.2f} |" in text
    orders = {
        row["indexing"]: row["us"]
        for row in stored["winograd"]["changing"]
        if (row["layer"], row["batch"], row["way"]) == (LAYERS[3].name, 1, PAPER_WAY.name)
    }
    saved = 100 * (1 - orders["channel-wise"] / orders["thread-wise"])
    assert f"{LAYERS[3].name} at batch 1: {saved:.0f} %" in text


# -- sentences that follow the numbers -------------------------------------------------------------
def test_a_direct_sum_that_is_slow_does_not_pay(results: dict[str, Any]) -> None:
    text = convpool_summary.summary(results["convpool"], **LINKS)
    assert "Ours, in one kernel: fp32 yes" in text
    for row in results["convpool"]["rows"]:
        row["systems"]["ours"]["us"] *= 100
    text = convpool_summary.summary(results["convpool"], **LINKS)
    assert "Ours, in one kernel: fp32 no; fp16 no" in text
    assert "never leave the chip" not in text


def test_an_order_of_threads_that_saves_everywhere_is_told_so(results: dict[str, Any]) -> None:
    found = results["winograd"]
    words = winograd_summary.summary(found, **LINKS)
    assert "nothing is saved and much may be lost" in words
    for part in ("changing", "filters"):
        for row in found[part]:
            row["us"] = 80.0 if row["indexing"].startswith("channel") else 100.0
            row["filters_us"], row["share"] = row["us"] / 2, 0.5
    words = winograd_summary.summary(found, **LINKS)
    assert "in 12 of 12 cases" in words
    assert "nothing is saved" not in words
    assert "Bytes more than lanes" not in words  # all splits gain alike
    assert "20 % of a convolution" in order_words(found["changing"])
    for row in found["summary"]:
        row |= {"ratio": 0.5, "FFT_us": 2 * row["chosen_us"]}
    words = winograd_summary.method_words(found)
    assert "does not pay everywhere" in words
    assert "FFT is quicker" not in words


def test_a_ladder_that_gains_everywhere_is_told_so(results: dict[str, Any]) -> None:
    found = results["slayer"]
    words = slayer_summary.summary(found, **LINKS)
    assert "less than 2 at S1" in words
    assert "- S1, 1.58 times" in words
    assert "does not pay everywhere" not in words
    for row in found["sections"]["ladder"]["rows"]:
        if row["system"] == "T5":
            row["us"] = {batch: us / 10 for batch, us in row["us"].items()}
    words = slayer_summary.summary(found, **LINKS)
    assert "less than 2 at" not in words
    assert "- S1, " not in words
    assert "256 at a time: yes" in words
    assert "does not pay everywhere" in words  # leaving out silent inputs, beside this T5


def test_what_is_measured_is_not_missed(results: dict[str, Any]) -> None:
    found = results["slayer"]
    row = {"batch": 1, "pass_us": 20.0, "in_all_us": 50.0, "transfers_us": 30.0}
    eight = {**row, "batch": 8, "share_of_gpu": 0.001, "share_of_time": 0.002}
    found["sections"]["character"] = [row, eight]
    found["sections"]["devices"].append(
        {"gpus": 4, "batch": 4096, "per_second": 5e6, "efficiency": 0.9, "same": True}
    )
    assert missing(found) == ""
    assert "50 us on the GPU, from host to host" in slayer_summary.summary(found, **LINKS)
    assert "anything on a GPU" in missing({"sections": {"cpu": [1]}})


# -- counts ----------------------------------------------------------------------------------------
def test_sectors_of_the_filter_transform() -> None:
    layer = LAYERS[0]
    paper = {o: traffic(PAPER_WAY.plan(layer), o)
             for o in ("channel-wise", "thread-wise", "channel-wise, own banks")}  # fmt: skip
    wise, thread = paper["channel-wise"], paper["thread-wise"]
    assert wise.least_read == 49 * 4 / 32
    assert wise.least_written == wise.written == 100 * 4 / 32  # (4 + 4 + 2)^2 points
    assert wise.read == 49  # a lane's neighbour is a filter further
    assert (wise.lanes, wise.banks, thread.banks) == (32, 8, 1)
    assert thread.lanes < 32 / 2
    assert thread.written > 2 * wise.written
    assert paper["channel-wise, own banks"].banks == 1
    four = next(way for way in WAYS if way.sizes == (4, 4)).plan(layer)
    assert wise.spread == 512 * 49 * 4
    assert traffic(four, "thread-wise").written == traffic(four, "channel-wise").written


# -- figures ---------------------------------------------------------------------------------------
def test_the_key_of_a_figure_lies_below_it() -> None:
    axis = Axis("x", 0, 1, [(0, "0"), (1, "1")])
    lines = [Line(f"line {i}", [(0, i / 4), (1, 1)]) for i in range(4)]
    text = standalone(lines, axis, axis, title="t")
    height = float(re.findall(r'viewBox="0 0 460 (\d+)"', text)[0])
    places = [float(y) for y in re.findall(r'<text x="\d+" y="(\d+)">line', text)]
    assert len(places) == 4
    assert 300 < min(places) <= max(places) < height
    assert json.dumps(text).count("polyline") == 4
