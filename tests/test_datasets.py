"""Every format of labelled digits is read back as it was written; weights, strokes, writers; fetching."""

import gzip
import hashlib
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from neocog.errors import InputError, UsageError
from neocog.learning import datasets
from neocog.learning import fetch as fetching
from neocog.learning.calibrate import best_temperature
from neocog.learning.datasets import Digits, LabelledPictures, open_dataset, open_digits, read_idx
from neocog.learning.drawing.marks import written
from neocog.learning.drawing.pen import FILE, read_strokes
from neocog.learning.fetch import RemoteFile, default_folder, fetch
from neocog.learning.mix import Hand, Mix, open_mix
from neocog.vision.normalise import isolated_digit
from tests.support import digits_of, write_digits


def some_digits(count, seed=0):
    """Noise that stands for pictures, and labels 0, 1, 2, ..."""
    images = np.random.default_rng(seed).integers(0, 256, (count, 28, 28), np.uint8)
    return images, (np.arange(count) % 10).astype(np.uint8)


def write_idx(folder, prefix, count, *, packed=True, seed=0):
    write_digits(folder, prefix, *some_digits(count, seed), packed=packed)


def refused(place, match, split=None, error=InputError):
    with pytest.raises(error, match=match) as told:
        open_dataset(place, split=split)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("packed", [True, False])
def test_idx_folder_has_its_parts(tmp_path, packed):
    write_idx(tmp_path, "train", 120, packed=packed)
    write_idx(tmp_path, "t10k", 20, packed=packed, seed=1)
    train, test, validation, learning = (open_digits(tmp_path, split=part) for part in datasets.SPLITS)
    assert [len(part) for part in (train, test, learning, validation)] == [120, 20, 110, 10]
    np.testing.assert_array_equal(train.images, some_digits(120)[0])
    np.testing.assert_array_equal(test.images, some_digits(20, 1)[0])
    np.testing.assert_array_equal(validation.images, train.images[110:])
    np.testing.assert_array_equal(learning.labels, train.labels[:110])
    assert len(open_digits(tmp_path)) == 20  # the test part where none is named
    assert (train.images.dtype, train.labels.dtype) == (np.uint8, np.int64)
    rows = datasets.rows_of_part(tmp_path, np.arange(60_000), "validation")
    assert rows.tolist() == list(range(55_000, 60_000))


def test_one_idx_file_brings_its_labels_and_gz_is_known_by_its_content(tmp_path):
    write_idx(tmp_path, "train", 11)
    assert len(open_digits(tmp_path, split="learning")) == 11
    refused(tmp_path, "11 training digits are too few", "validation")
    write_idx(tmp_path, "train", 12)
    assert [len(open_digits(tmp_path, split=part)) for part in ("learning", "validation")] == [11, 1]
    write_idx(tmp_path, "t10k", 10)
    train, test = (tmp_path / f"{part}-images-idx3-ubyte.gz" for part in ("train", "t10k"))
    assert open_digits(train).labels.tolist() == some_digits(12)[1].tolist()
    with pytest.raises(InputError, match="12 pictures but 10 labels"):
        read_idx(train, tmp_path / "t10k-labels-idx1-ubyte.gz")
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (tmp_path / f"{name}.gz").rename(tmp_path / name)
    assert len(open_digits(tmp_path, split="train")) == 12
    assert len(open_digits(test, split="test")) == 10  # it is that part
    refused(train.with_suffix(""), "has no test part; leave --split out", "test")
    refused(tmp_path, "choose one of train, test", "dev", UsageError)


def test_what_claims_or_unpacks_to_more_than_a_set_is_not_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(np.array([0x803, 500_001, 28, 28], ">u4").tobytes()))
    refused(tmp_path, "promises 392000784 bytes, expected at most 500000 digits")
    monkeypatch.setattr(datasets, "MAX_DIGITS", 1000)
    path.rename(tmp_path / "labels.csv")
    many = b"file,digits" + b"\na," * 1001
    for text, why in ((b" " * (2**25 + 1), "more than 32 MiB"), (many, "more than 1000 rows")):
        (tmp_path / "labels.csv").write_bytes(gzip.compress(text, 1))
        refused(tmp_path, why)


@pytest.mark.parametrize(("name", "text", "why"), [
    ("zip.train", "", "empty, expected lines of 257 numbers"),
    ("zip.train", "1 " * 300, "300 numbers a line, expected lines of 257"),
    ("zip.train", "1 " * 257 + "\n" + "1 " * 5001, "a line of more than 10 000 characters, expected"),
    ("zip.train", "1 " * 257 + "\n1 2\n", "changed from 257 to 2 at row 2; expected"),
    ("zip.train", "a " * 257, "could not convert string 'a' .* row 0, column 1"),
    ("zip.train", "11 " * 257, "a label outside 0..9 or a value outside -1..1"),
    ("zip.train", "nan " * 257, "a label outside"),
    ("labels.csv", "file,text\n", "has no rows, expected a row for each picture"),
    ("labels.csv", "", "columns .* are needed; it has none"),
    ("labels.csv", "file,note\na.png,1\n", "columns .* are needed; it has file, note"),
    ("labels.csv", "file,text\na.png,none\nb.png,?\n", "no row of 2 has a digit in its text"),
    ("usps", None, r"give .*usps or the like, .* eval .* --report DIR"),
])  # fmt: skip
def test_what_is_no_set(tmp_path, name, text, why):
    (tmp_path / name).mkdir() if text is None else (tmp_path / name).write_text(text)
    refused(tmp_path, why)


def test_usps_text_becomes_mnist_form_and_has_two_parts(tmp_path):
    ink = np.full((16, 16), "-1.0")
    ink[:, 12:15] = "1.0"  # a stroke at the right edge
    one, seven, two = (" ".join([f"{label}.0", *ink.ravel()]) + "\n" for label in (1, 7, 2))
    (tmp_path / "zip.train.gz").write_bytes(gzip.compress((one + seven).encode()))
    digits = open_digits(tmp_path, split="learning")
    assert digits.labels.tolist() == open_digits(tmp_path).labels.tolist() == [1, 7]
    rows, columns = np.nonzero(digits.images[0])
    assert np.ptp(rows) + 1 == 20
    assert abs(columns.mean() - 13.5) <= 0.5
    assert digits.images.max() == 255
    (tmp_path / "zip.test").write_text(two)
    assert open_digits(tmp_path).labels.tolist() == [2]
    assert open_digits(tmp_path, split="train").labels.tolist() == [1, 7]
    refused(tmp_path, "no validation part", "validation")


def test_folders_of_classes_begin_with_every_label(tmp_path):
    for label, count in ((0, 4), (3, 2), (9, 1)):
        (tmp_path / str(label)).mkdir()
        for number in range(count):
            pixels = np.full((28, 28), 10 * label + number, np.uint8)
            pixels[0] = pixels[:, [0, -1]] = pixels[-1] = 0  # the border is dark: ink on 0
            Image.fromarray(pixels).save(tmp_path / str(label) / f"{number}.png")
    (tmp_path / "3" / "notes.txt").write_text("not a picture")
    digits = open_digits(tmp_path)
    assert digits.labels.tolist() == [0, 3, 9, 0, 3, 0, 0]
    assert digits.images[:, 14, 14].tolist() == [0, 30, 90, 1, 31, 2, 3]
    seven = np.full((60, 40), 230, np.uint8)  # on light paper
    seven[10:15, 8:30] = seven[10:50, 25:30] = 40
    Image.fromarray(seven).save(tmp_path / "9" / "0.png")
    dark = open_digits(tmp_path, split="learning").images[2]
    assert (dark[0].max(), dark.max()) == (0, 255)  # paper became 0
    np.testing.assert_array_equal(dark, isolated_digit(255 - seven))
    assert not isolated_digit(np.full((9, 9), 200, np.uint8)).any()
    for split in ("test", "validation"):
        refused(tmp_path, f"has no {split} part", split)


@pytest.mark.parametrize(("table", "files", "expected", "left_out"), [
    ("\ufefffile,text,notes\na.png,12|34,\nsub/b.png,no. 5,x\n", ["a.png", "sub/b.png"], ("1234", "5"), ()),
    ("file,text,digits\na.png,no. 12,7\n", ["a.png"], ("7",), ()),
    # rows without a digit are left out, but blank pages are not
    ("file,text\na.png,none\nb.png,12\nc.png,\n", ["b.png", "c.png"], ("12", ""), ("a.png",)),
])  # fmt: skip
def test_labels_csv(tmp_path, table, files, expected, left_out):
    (tmp_path / "labels.csv").write_text(table, encoding="utf-8")
    for place in (tmp_path, tmp_path / "labels.csv"):
        pictures = open_dataset(place)
        assert isinstance(pictures, LabelledPictures)
        assert (pictures.expected, pictures.files) == (expected, tuple(tmp_path / name for name in files))
        assert pictures.left_out == pictures[:1].left_out == left_out
    with pytest.raises(InputError, match="expected isolated digits"):
        open_digits(tmp_path)


def test_sets_by_name_are_what_was_installed_or_fetched(tmp_path, monkeypatch):
    digits, place = open_digits("sklearn"), tmp_path / "sets" / "mnist"
    assert digits.images.shape == (1797, 28, 28)
    assert digits.labels[:3].tolist() == [0, 1, 2]
    assert np.median(digits.images.max(axis=(1, 2))) == 255
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEOCOG_DATA", str(tmp_path / "sets"))
    refused("mnist", "neocog data fetch mnist")
    place.mkdir(parents=True)
    (place / "train-images-idx3-ubyte.gz.part").touch()  # it broke off
    refused("mnist", "neocog data fetch mnist")
    write_idx(place, "t10k", 10)
    assert len(open_digits("mnist")) == 10


# --- several sets, by weight ---

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
    refused(folder, "59 writers of 60 digits, expected one each", "learning")


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
    found = []
    for count in (10, 1000):  # always right; beside ten right as often as wrong
        sets = [np.zeros(count, np.int64), np.arange(10) % 2]
        mix = Mix(tuple(Hand(Digits(np.zeros((len(s), 28, 28), np.uint8), s, "d")) for s in sets))
        found.append(best_temperature(np.eye(1, 10, dtype=np.float32).repeat(count + 10, axis=0), mix))
    assert found[0] == found[1]


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
    np.savez(tmp_path / FILE, points=np.zeros((3, 2), np.int16), stroke_start=[0, 4], sample_start=[0, 1])
    with pytest.raises(InputError, match="do not fit together"):
        read_strokes(tmp_path / FILE)
    for data in (b"", b"PK\x03\x04 no zip", b"\x93NUMPY"):
        (tmp_path / FILE).write_bytes(data)
        with pytest.raises(InputError, match="not a file of pen strokes"):
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


@pytest.mark.data
def test_the_real_sets(data_dir):
    assert len(open_digits(data_dir / "mnist", split="learning")) == 55_000
    assert len(open_digits(data_dir / "mnist", split="validation")) == 5_000
    assert open_digits(data_dir / "mnist").labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert len(open_digits(data_dir / "usps")) == 7_291
    photos = open_dataset(data_dir / "photos")
    assert isinstance(photos, LabelledPictures)
    assert all(file.is_file() for file in photos.files)


# --- fetching ---


BYTES = np.random.default_rng(3).bytes(300_000)
NAME = "digits.gz"
NOBODY = "http://127.0.0.1:9/"


@pytest.fixture
def tiny_set(monkeypatch):
    file = RemoteFile(NAME, len(BYTES), hashlib.md5(BYTES).hexdigest())
    monkeypatch.setitem(fetching.SETS, "tiny", (file,))
    monkeypatch.setattr(fetching, "TIMEOUT", 5.0)


@pytest.fixture
def mirror(tiny_set):
    """A server of `BYTES`, or of something else."""

    class Handler(BaseHTTPRequestHandler):
        body, sent, status, asked = BYTES, len(BYTES), 200, 0

        def do_GET(self):
            Handler.asked += 1
            self.send_response(self.status if self.path == f"/set/{NAME}" else 404)
            self.send_header("Content-Length", str(len(self.body)))
            self.end_headers()
            self.wfile.write(self.body[: self.sent])

        def log_message(self, *_): ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, ThreadPoolExecutor(1) as pool:
        Handler.address = f"http://127.0.0.1:{server.server_address[1]}/set/"
        pool.submit(server.serve_forever, 0.01)
        yield Handler
        server.shutdown()


def test_a_file_comes_whole_and_is_left_alone_after(tmp_path, mirror):
    steps, to = [], tmp_path / "new" / "folder"
    for _ in range(2):
        told = {"mirrors": [mirror.address], "progress": lambda _, here, __: steps.append(here)}
        assert fetch("tiny", to=to, **told) == to
    assert [(path.name, path.read_bytes()) for path in to.iterdir()] == [(NAME, BYTES)]
    assert steps == sorted(steps)
    assert (steps.count(len(BYTES)), mirror.asked) == (2, 1)
    (to / NAME).write_bytes(b"?" * len(BYTES))  # damaged: fetched again, from the next mirror
    fetch("tiny", to=to, mirrors=[NOBODY, mirror.address])
    assert (to / NAME).read_bytes() == BYTES


@pytest.mark.parametrize(("change", "said"), [
    ({"status": 503}, "failed .*503"),
    ({"sent": 1000}, "wrong length or checksum"),  # it broke off
    ({"body": bytes(len(BYTES))}, "wrong length or checksum"),
    ({"body": BYTES + b"more", "sent": 10**6}, "wrong length or checksum"),
])  # fmt: skip
def test_no_mirror_has_it(tmp_path, mirror, change, said):
    for name, value in change.items():
        setattr(mirror, name, value)
    with pytest.raises(InputError, match=said) as caught:
        fetch("tiny", to=tmp_path / "to", mirrors=[NOBODY, mirror.address])
    assert "--from DIR" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "to").exists()


@pytest.mark.usefixtures("tiny_set")
def test_a_file_comes_from_a_folder(tmp_path):
    source, to = tmp_path / "usb", tmp_path / "to"
    source.mkdir()
    with pytest.raises(InputError, match="does not exist; --from needs"):
        fetch("tiny", to=to, source=source)
    for wrong in (BYTES[:-1], bytes(len(BYTES))):
        (source / NAME).write_bytes(wrong)
        with pytest.raises(InputError, match="not the expected file"):
            fetch("tiny", to=to, source=source)
    assert not to.exists()
    (source / NAME).write_bytes(BYTES)
    fetch("tiny", to=to, source=source)
    assert (to / NAME).read_bytes() == BYTES
    with pytest.raises(InputError, match="choose another --to"):
        fetch("tiny", to=to / NAME / "folder", source=source)
    with pytest.raises(UsageError, match="choose one of mnist"):
        fetch("emnist", to=tmp_path)


def test_the_place_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("NEOCOG_DATA", raising=False)
    for variable, folder in (("XDG_CACHE_HOME", "/c/neocog/mnist"), ("NEOCOG_DATA", "/d/mnist")):
        monkeypatch.setenv(variable, folder[:2])
        assert default_folder("mnist") == Path(folder)
