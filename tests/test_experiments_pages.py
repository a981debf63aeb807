"""The experiments' pages: tables and plots of results, put into pages that are written by hand."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.convpool.systems import counts
from experiments.harness import run
from experiments.harness.pages import (
    FOLDER,
    fill,
    markdown,
    page_of,
    span,
    table,
    tables_of,
    text,
    write_pages,
)
from experiments.harness.run import Request, tried
from experiments.slayer.tables import systems_of
from experiments.winograd.lanes import traffic
from experiments.winograd.layers import LAYERS, PAPER_WAY, WAYS
from neocog.errors import DeviceError, InputError, UsageError
from tests.support import run as command

NAMES = ("convpool", "winograd", "slayer")


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    """What was measured."""
    return run.load([FOLDER / name / "results" / f"{name}.json" for name in NAMES])


def nothing(result: Any) -> None:
    pass


# -- pages -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_pages_hold_the_tables_of_the_stored_results(stored: dict[str, Any], name: str) -> None:
    page = (FOLDER / name / "README.md").read_text()
    assert page_of(name, stored[name]) == page, "run python -m experiments.tables"
    there = set(re.findall(r"<!-- table (.*?) -->", page))
    assert there == {*tables_of(name, stored[name]), "missing"}
    assert not re.search(r"\b(nan|None|inf)\b", page)
    assert "not in our copy" in " ".join(page.split())


def test_pages_and_plots_are_written_beside_each_other(stored: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs neocog[bench]")
    files = write_pages(stored, tmp_path / "deep" / "README.md")
    assert set(files) == set((tmp_path / "deep").rglob("*.*"))
    for name in NAMES:
        page = (tmp_path / "deep" / name / "README.md").read_text()
        assert page == (FOLDER / name / "README.md").read_text()
        for link in re.findall(r"!\[.*\]\((.*)\)", page):
            assert "<svg" in (tmp_path / "deep" / name / link).read_text()


def test_numbers_of_the_pages_are_those_of_the_results(stored: dict[str, Any]) -> None:
    rows = stored["slayer"]["sections"]["ladder"]["rows"]
    own = systems_of([row for row in rows if row["planes"] == "26/78/70"], "1")
    t1, t5 = (sum(row["us"]["1"] for row in own[name].values()) for name in ("T1", "T5"))
    assert f" {t5:.1f} | {t1 / t5:.2f} |" in text("slayer", stored["slayer"])
    (row,) = (
        row
        for row in stored["convpool"]["rows"]
        if (row["channels"], row["batch"], row["precision"]) == (512, 64, "fp32")
    )
    base = min(row["systems"][name]["us"] for name in ("naive", "winograd"))
    assert f"| {base / row['systems']['ours']['us']:.2f} |" in text("convpool", stored["convpool"])
    us = {
        row["indexing"]: row["us"]
        for row in stored["winograd"]["changing"]
        if (row["layer"], row["batch"], row["way"]) == (LAYERS[3].name, 1, PAPER_WAY.name)
    }
    saved = 100 * (1 - us["channel-wise"] / us["thread-wise"])
    assert f" | {saved:.0f} % | " in text("winograd", stored["winograd"])
    assert "cudaLaunchKernel" not in text("winograd", stored["winograd"])


def test_what_was_not_measured_is_told(stored: dict[str, Any]) -> None:
    found = stored["winograd"]
    found = found | {"layers": [row for row in found["layers"] if "halves" not in row["way"]]}
    assert "counted but not measured" in text("winograd", found)
    rest = {"not_run": ["a"], "failures": {"c": "no"}}
    told = text("slayer", stored["slayer"] | rest)
    for line in ("| a | no time was left |", "| section c | no |"):
        assert line in told
    empty = {"sections": {}, "digits": "d", "date": "2026", "command": "c", "model": "m"}
    assert "| the ladder | not measured |" in text("slayer", empty)
    assert "cannot be shown" in text("slayer", {"old": 1})
    assert "| convpool | it failed |" in text("convpool", {"failed": "it failed"})


def test_a_table_is_made_of_records() -> None:
    columns = {"a": "a", "b, us": "b|.1f", "both": lambda row: f"{row['a']}{row['b']}"}
    rows = table(columns, [{"a": 1, "b": 2.25}, {"a": 3, "b": None}])
    assert markdown(rows).splitlines()[2:] == ["| 1 | 2.2 | 12.25 |", "| 3 | – | 3None |"]
    assert fill("<!-- table x y -->\nold\n<!-- end -->", str.upper).split("\n")[1] == "X Y"
    assert (span([], ".1f"), span([1, 1.01], ".1f"), span([1, 2, None], ".0f")) == ("–", "1.0", "1 to 2")


# -- running ---------------------------------------------------------------------------------------
def test_all_experiments_run_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convpool(request: Request, save: Any) -> Any:
        assert request.command == "all of it --only convpool"
        save({"rows": []})
        return {"command": "c", "machine": "m", "experiment": "convpool", "counts": counts()}

    def broken(request: Request, save: Any) -> Any:
        save({"sections": {}})
        raise DeviceError("no such thing")

    monkeypatch.setattr("experiments.convpool.experiment.measure", convpool)
    monkeypatch.setattr("experiments.slayer.experiment.measure", broken)
    kept: list[str] = []
    found = run.run_all(
        ("convpool", "slayer"),
        Request(quick=True, command="all of it"),
        lambda results: kept.append(json.dumps(results)),
    )
    assert len(kept) == 4
    assert found["slayer"]["sections"] == {}  # what it has so far stays
    assert run.faults(found) == ["slayer: DeviceError: no such thing"]
    path, single = tmp_path / "results.json", tmp_path / "convpool.json"
    path.write_text(kept[-1])
    write_pages(run.load([path]), tmp_path / "README.md")
    assert "| 512 | 4832362496 |" in (tmp_path / "convpool" / "README.md").read_text()
    assert "DeviceError" in (tmp_path / "slayer" / "README.md").read_text()
    single.write_text(json.dumps(found["convpool"]))
    assert list(run.load([single])) == ["convpool"]


def test_what_is_no_result_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    for words in ("{}", "[]", "no"):
        path.write_text(words)
        with pytest.raises(InputError, match=r"none\.json"):
            run.load([path])
    with pytest.raises(InputError, match=r"missing\.json"):
        run.load([tmp_path / "missing.json"])
    with pytest.raises(UsageError, match="no experiment 'x'"):
        run.run_all(("x",), Request(), nothing)


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


# -- the harness -----------------------------------------------------------------------------------
def test_what_fails_is_noted_while_the_device_works() -> None:
    assert tried(lambda: {"us": 1.0}, lambda: 1 / 0) == {"us": 1.0}
    assert tried(lambda: 1 / 0, lambda: None) == {"failed": "ZeroDivisionError: division by zero"}
    with pytest.raises(DeviceError, match="stopped working: ZeroDivisionError"):
        tried(lambda: 1 / 0, lambda: 1 / 0)


def test_without_the_source_a_line_says_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neocog.cli.tools._SOURCE", tmp_path)
    for words in (["bench", "slayer", "--device", "cpu"], ["bench", "--help"]):
        done = command(*words)
        assert done.exit_code == 2
        assert "need a clone" in done.stderr
        assert done.stderr.count("\n") == 1
