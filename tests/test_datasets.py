"""Every format of labelled digits is read back as it was written."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from neocog.errors import InputError, UsageError
from neocog.learning import datasets
from neocog.learning.datasets import LabelledPictures, open_dataset, open_digits, read_idx
from neocog.vision.normalise import isolated_digit
from tests.support import write_digits

Images = NDArray[np.uint8]


def some_digits(count: int, seed: int = 0) -> tuple[Images, Images]:
    """Noise that stands for pictures, and labels 0, 1, 2, ..."""
    images = np.random.default_rng(seed).integers(0, 256, (count, 28, 28), np.uint8)
    return images, (np.arange(count) % 10).astype(np.uint8)


def write_idx(folder: Path, prefix: str, count: int, *, packed: bool = True, seed: int = 0) -> None:
    write_digits(folder, prefix, *some_digits(count, seed), packed=packed)


def one_stroke() -> Images:
    """A 7 in dark grey on light paper, 60x40."""
    grey = np.full((60, 40), 230, np.uint8)
    grey[10:15, 8:30] = 40
    grey[10:50, 25:30] = 40
    return grey


@pytest.mark.parametrize("packed", [True, False])
def test_idx_folder_has_its_parts(tmp_path: Path, packed: bool) -> None:
    write_idx(tmp_path, "train", 120, packed=packed)
    write_idx(tmp_path, "t10k", 20, packed=packed, seed=1)
    train, test, learning, validation = (
        open_digits(tmp_path, split=split) for split in ("train", "test", "learning", "validation")
    )
    assert (len(train), len(test), len(learning), len(validation)) == (120, 20, 110, 10)
    np.testing.assert_array_equal(train.images, some_digits(120)[0])
    np.testing.assert_array_equal(test.images, some_digits(20, 1)[0])
    np.testing.assert_array_equal(validation.images, train.images[110:])
    np.testing.assert_array_equal(learning.labels, train.labels[:110])
    assert len(open_digits(tmp_path)) == 20  # the test part where none is named
    assert train.images.dtype == np.uint8
    assert train.labels.dtype == np.int64
    rows = datasets.rows_of_part(tmp_path, np.arange(60_000), "validation")
    assert rows.tolist() == list(range(55_000, 60_000))


def test_one_idx_file_brings_its_labels_and_gz_is_known_by_its_content(tmp_path: Path) -> None:
    write_idx(tmp_path, "train", 12)
    write_idx(tmp_path, "t10k", 10)
    digits = open_digits(tmp_path / "train-images-idx3-ubyte.gz")
    assert digits.labels.tolist() == some_digits(12)[1].tolist()
    with pytest.raises(InputError, match="12 pictures but 10 labels"):
        read_idx(tmp_path / "train-images-idx3-ubyte.gz", tmp_path / "t10k-labels-idx1-ubyte.gz")
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (tmp_path / f"{name}.gz").rename(tmp_path / name)
    assert len(open_digits(tmp_path, split="train")) == 12
    assert len(open_digits(tmp_path / "t10k-images-idx3-ubyte.gz", split="test")) == 10  # it is that part
    with pytest.raises(InputError, match="has no test part; leave --split out"):
        open_digits(tmp_path / "train-images-idx3-ubyte", split="test")
    with pytest.raises(UsageError, match="choose one of train, test"):
        open_dataset(tmp_path, split="dev")


def test_what_claims_or_unpacks_to_more_than_a_set_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(np.array([0x803, 500_001, 28, 28], ">u4").tobytes()))
    with pytest.raises(InputError, match="promises 392000784 bytes, expected at most 500000 digits"):
        open_digits(tmp_path)
    monkeypatch.setattr(datasets, "MAX_DIGITS", 1000)
    path.rename(tmp_path / "labels.csv")
    cases = (
        (b" " * (2**25 + 1), "more than 32 MiB"),
        (b"file,digits" + b"\na," * 1001, "more than 1000 rows"),
    )
    for text, why in cases:
        (tmp_path / "labels.csv").write_bytes(gzip.compress(text, 1))
        with pytest.raises(InputError, match=why):
            open_dataset(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty, expected lines of 257 numbers"),
        ("1 " * 300, "300 numbers a line, expected lines of 257"),
        ("1 " * 257 + "\n" + "1 " * 5001, "a line of more than 10 000 characters, expected"),
        ("1 " * 257 + "\n1 2\n", "changed from 257 to 2 at row 2; expected"),
        ("a " * 257, "could not convert string 'a' .* row 0, column 1"),
        ("11 " * 257, "a label outside 0..9 or a value outside -1..1"),
        ("nan " * 257, "a label outside"),
    ],
)
def test_text_that_is_not_usps(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "zip.train").write_text(text)
    with pytest.raises(InputError, match=why) as refused:
        open_dataset(tmp_path)
    assert "\n" not in str(refused.value)


def usps_line(label: int, ink: NDArray[np.float32]) -> str:
    return " ".join([f"{label:.4f}", *(f"{2 * value - 1:.4f}" for value in ink.ravel())])


def test_usps_text_becomes_mnist_form(tmp_path: Path) -> None:
    ink = np.zeros((16, 16), np.float32)
    ink[:, 12:15] = 1.0  # a stroke at the right edge
    (tmp_path / "zip.train.gz").write_bytes(
        gzip.compress("\n".join([usps_line(1, ink), usps_line(7, ink), ""]).encode())
    )
    digits = open_digits(tmp_path, split="learning")
    assert digits.labels.tolist() == [1, 7]
    rows, columns = np.nonzero(digits.images[0])
    assert rows.max() - rows.min() + 1 == 20
    assert abs(columns.mean() - 13.5) <= 0.5
    assert digits.images.max() == 255


def test_usps_parts_are_its_two_files(tmp_path: Path) -> None:
    ink = np.ones((16, 16), np.float32)
    (tmp_path / "zip.train").write_text(usps_line(1, ink))
    (tmp_path / "zip.test").write_text(usps_line(2, ink))
    assert open_digits(tmp_path).labels.tolist() == [2]
    assert open_digits(tmp_path, split="train").labels.tolist() == [1]
    with pytest.raises(InputError, match="no validation part"):
        open_digits(tmp_path, split="validation")


def test_folders_of_classes_begin_with_every_label(tmp_path: Path) -> None:
    for label, count in ((0, 4), (3, 2), (9, 1)):
        (tmp_path / str(label)).mkdir()
        for number in range(count):
            pixels = np.full((28, 28), 10 * label + number, np.uint8)
            pixels[0] = 0  # the border is dark: ink on 0
            pixels[:, [0, -1]] = pixels[-1] = 0
            Image.fromarray(pixels).save(tmp_path / str(label) / f"{number}.png")
    (tmp_path / "3" / "notes.txt").write_text("not a picture")
    digits = open_digits(tmp_path)
    assert digits.labels.tolist() == [0, 3, 9, 0, 3, 0, 0]
    assert digits.images[:, 14, 14].tolist() == [0, 30, 90, 1, 31, 2, 3]
    Image.fromarray(one_stroke()).save(tmp_path / "9" / "0.png")
    dark = open_digits(tmp_path).images[2]
    assert (dark[0].max(), dark.max()) == (0, 255)  # paper became 0


def test_a_small_set_has_no_validation_part(tmp_path: Path) -> None:
    write_idx(tmp_path, "train", 12)
    assert len(open_digits(tmp_path, split="learning")) == 11
    assert len(open_digits(tmp_path, split="validation")) == 1
    write_idx(tmp_path, "train", 11)
    assert len(open_digits(tmp_path, split="learning")) == 11
    with pytest.raises(InputError, match="11 training digits are too few"):
        open_digits(tmp_path, split="validation")


def test_isolated_digit_turns_dark_on_light() -> None:
    stroke = one_stroke()
    np.testing.assert_array_equal(isolated_digit(stroke), isolated_digit(255 - stroke))
    assert not isolated_digit(np.full((9, 9), 200, np.uint8)).any()


@pytest.mark.parametrize(
    ("table", "files", "expected", "left_out"),
    [
        ("\ufefffile,text,notes\na.png,12|34,\nsub/b.png,no. 5,x\n", ["a.png", "sub/b.png"],
         ("1234", "5"), ()),
        ("file,text,digits\na.png,no. 12,7\n", ["a.png"], ("7",), ()),
        # rows without a digit are left out, but blank pages are not
        ("file,text\na.png,none\nb.png,12\nc.png,\n", ["b.png", "c.png"], ("12", ""), ("a.png",)),
    ],
)  # fmt: skip
def test_labels_csv(
    tmp_path: Path, table: str, files: list[str], expected: tuple[str, ...], left_out: object
) -> None:
    (tmp_path / "labels.csv").write_text(table, encoding="utf-8")
    for place in (tmp_path, tmp_path / "labels.csv"):
        pictures = open_dataset(place)
        assert isinstance(pictures, LabelledPictures)
        assert pictures.expected == expected
        assert pictures.files == tuple(tmp_path / name for name in files)
        assert pictures.left_out == pictures[:1].left_out == left_out
    with pytest.raises(InputError, match="expected isolated digits"):
        open_digits(tmp_path)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("file,text\n", "has no rows, expected a row for each picture"),
        ("", "columns .* are needed; it has none"),
        ("file,note\na.png,1\n", "columns .* are needed; it has file, note"),
        ("file,text\na.png,none\nb.png,?\n", "no row of 2 has a digit in its text"),
    ],
)
def test_tables_that_label_nothing(tmp_path: Path, table: str, why: str) -> None:
    (tmp_path / "labels.csv").write_text(table)
    with pytest.raises(InputError, match=why):
        open_dataset(tmp_path)


def test_a_set_without_parts_has_no_test_part(tmp_path: Path) -> None:
    (tmp_path / "3").mkdir()
    Image.fromarray(one_stroke()).save(tmp_path / "3" / "a.png")
    for split in ("test", "validation"):
        with pytest.raises(InputError, match=f"has no {split} part"):
            open_dataset(tmp_path, split=split)
    assert len(open_digits(tmp_path, split="learning")) == len(open_digits(tmp_path)) == 1


def test_a_folder_of_sets_is_not_one(tmp_path: Path) -> None:
    (tmp_path / "usps").mkdir()
    with pytest.raises(InputError, match=r"give .*usps or the like, .* eval .* --report DIR"):
        open_dataset(tmp_path)


def test_sklearn_digits() -> None:
    digits = open_digits("sklearn")
    assert digits.images.shape == (1797, 28, 28)
    assert digits.labels[:3].tolist() == [0, 1, 2]
    assert np.median(digits.images.max(axis=(1, 2))) == 255


def test_mnist_by_name_is_what_was_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEOCOG_DATA", str(tmp_path / "sets"))
    with pytest.raises(InputError, match="neocog data fetch mnist"):
        open_digits("mnist")
    (tmp_path / "sets" / "mnist").mkdir(parents=True)
    (tmp_path / "sets" / "mnist" / "train-images-idx3-ubyte.gz.part").touch()  # it broke off
    with pytest.raises(InputError, match="neocog data fetch mnist"):
        open_digits("mnist")
    write_idx(tmp_path / "sets" / "mnist", "t10k", 10)
    assert len(open_digits("mnist")) == 10


@pytest.mark.data
def test_the_real_sets(data_dir: Path) -> None:
    assert len(open_digits(data_dir / "mnist", split="learning")) == 55_000
    assert len(open_digits(data_dir / "mnist", split="validation")) == 5_000
    test = open_digits(data_dir / "mnist")
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    usps = open_digits(data_dir / "usps")
    assert len(usps) == 7_291
    photos = open_dataset(data_dir / "photos")
    assert isinstance(photos, LabelledPictures)
    assert all(file.is_file() for file in photos.files)
