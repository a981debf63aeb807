"""The experiments' pages: tables and plots of results, put into pages that are written by hand."""

import json
import re

import pytest

pd = pytest.importorskip("pandas", reason="needs neocog[bench]")

from experiments.commands import _merged  # noqa: E402
from experiments.harness.pages import text  # noqa: E402
from experiments.harness.run import FOLDER, NAMES, load, of, tried  # noqa: E402
from neocog.errors import DeviceError, InputError  # noqa: E402
from tests.support import run  # noqa: E402

RESULTS = {name: FOLDER / name / "results" / f"{name}.json" for name in NAMES}


def test_pages_hold_the_tables_and_plots_of_the_stored_results(tmp_path):
    pytest.importorskip("matplotlib", reason="needs neocog[bench]")
    assert run("bench", "report", *RESULTS.values(), "-o", tmp_path).exit_code == 0
    for name, path in RESULTS.items():
        page = (tmp_path / name / "README.md").read_text()
        assert page == (FOLDER / name / "README.md").read_text(), "run python -m experiments.tables"
        assert set(re.findall(r"<!-- table (.*?) -->", page)) == set(of(name, "tables").tables(load(path)))
        assert not re.search(r"\b(nan|None|inf|Not measured)\b", page)
        assert "not in our copy" in " ".join(page.split())
        for link in re.findall(r"!\[.*\]\((.*)\)", page):
            assert "<svg" in (tmp_path / name / link).read_text()


def test_numbers_of_the_pages_are_those_of_the_results():
    stored = {name: load(path) for name, path in RESULTS.items()}
    shown = {name: text(of(name, "tables").tables(result)) for name, result in stored.items()}
    rows = [r for r in stored["slayer"]["sections"]["ladder"]["rows"] if r["planes"] == "26/78/70"]
    t1, t5 = (sum(r["us"]["1"] for r in rows if r["system"] == name) for name in ("T1", "T5"))
    assert f" {t5:.1f} | {t1 / t5:.2f} |" in shown["slayer"]
    (row,) = (r for r in stored["convpool"]["rows"]
              if (r["channels"], r["batch"], r["precision"]) == (512, 64, "fp32"))  # fmt: skip
    base = min(row["systems"][name]["us"] for name in ("naive", "winograd"))
    ours = base / row["systems"]["ours"]["us"]
    assert f"| {ours:.2f} |" in shown["convpool"]
    us = {r["indexing"]: r["us"] for r in stored["winograd"]["changing"]
          if (r["layer"], r["batch"]) == ("7x7 384->768", 1) and "the paper's" in r["way"]}  # fmt: skip
    saved = 100 * (1 - us["channel-wise"] / us["thread-wise"])
    assert f" | {saved:.0f} % | " in shown["winograd"]


def test_earlier_sections_stay():
    first = _merged({}, {"machine": "a", "model": "m@1", "sections": {"cpu": [1], "ladder": [2]}})
    both = _merged(first, {"machine": "b", "model": "m@2", "sections": {"cpu": [3]}})
    assert both["sections"] == {"cpu": [3], "ladder": [2]}
    assert (both["from"]["cpu"]["machine"], both["from"]["ladder"]["machine"]) == ("b", "a")


@pytest.mark.parametrize(("content", "code", "message"), [
    ("nope", 1, "not JSON"), ('{"experiment": "winograd"}', 1, "a result of winograd"),
    ("[]", 1, "no result of"), (None, 2, "cannot be written"),
])  # fmt: skip
def test_a_file_that_cannot_take_the_result_is_told_first(content, code, message, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.slayer.experiment.measure", None)
    path = tmp_path / "file"
    path.write_text(content or "")
    done = run("bench", "slayer", "--device", "cpu", "-o", path if content else path / "out.json")
    assert (done.exit_code, done.output.count("\n")) == (code, 1), done.output
    assert message in done.output
    assert path.read_text() == (content or "")


def test_the_command_writes_and_prints(tmp_path):
    path = tmp_path / "deep" / "winograd.json"
    done = run("bench", "winograd", "--device", "cpu", "--quick", "-o", path)
    assert done.exit_code == 0, done.output
    assert "direct GFLOP" in done.output
    found = load(path)
    assert found["command"] == "neocog bench winograd --device cpu --quick"
    assert found["counts"][0]["direct_gflop"] == pytest.approx(2e-9 * 49 * 96 * 96 * 56**2)
    with pytest.raises(InputError, match=r"missing\.json"):
        load(tmp_path / "missing.json")
    done = run("bench", "convpool", "--device", "cpu", "--json")
    assert json.loads(done.stdout)["counts"][-1]["direct"] == 1_209_925_632


def test_what_fails_is_noted_while_the_device_works():
    assert tried(lambda: {"us": 1.0}, lambda: 1 / 0) == {"us": 1.0}
    assert tried(lambda: 1 / 0, lambda: None) == {"failed": "ZeroDivisionError: division by zero"}
    with pytest.raises(DeviceError, match="stopped working: ZeroDivisionError"):
        tried(lambda: 1 / 0, lambda: 1 / 0)


def test_without_the_source_or_a_gpu_a_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("neocog.reading.device.choose_device", lambda name: "cuda")
    monkeypatch.setattr("neocog.cuda.devices.trouble", lambda: "no driver; more")
    done = run("bench", "winograd")
    assert (done.exit_code, done.stderr) == (5, "neocog: no driver; --device cpu does what needs no GPU\n")
    monkeypatch.setattr("neocog.cli.tools._SOURCE", tmp_path)
    for words in (["bench", "slayer", "--device", "cpu"], ["bench", "--help"]):
        done = run(*words)
        assert done.exit_code == 2
        assert "need a clone" in done.stderr
        assert done.stderr.count("\n") == 1
