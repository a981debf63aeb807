"""The conditions under which made pages are written and photographed."""

from collections.abc import Callable

import cv2
import numpy as np

from benchmarks.pages import Canvas, Image, Plan, Rng

WORDS = (
    "the quick brown fox jumps over a lazy dog invoice date name street city amount payable "
    "please write clearly inside number of your form and return it before end month school"
).split()


def _uniform_colour(rng: Rng, low: float, high: float) -> tuple[float, float, float]:
    return tuple(rng.uniform(low, high, 3))  # type: ignore[return-value]


# --- what is drawn on the paper ------------------------------------------------------------


def _lines_across(canvas: Canvas, *, squared: bool) -> None:
    plan, rng = canvas.plan, canvas.plan.rng
    step = rng.uniform(24, 48) if squared else rng.uniform(55, 100)
    pen = int(rng.integers(1, 4))
    colour = np.array(plan.paper) * (rng.uniform(0.5, 0.88), rng.uniform(0.6, 0.9), 0.95)
    high, wide = canvas.image.shape[:2]
    phase = rng.uniform(0, step)
    for at in np.arange(phase, high, step):
        cv2.line(canvas.image, (0, int(at)), (wide, int(at)), colour.tolist(), pen, cv2.LINE_AA)
    if squared:
        for at in np.arange(phase, wide, step):
            cv2.line(canvas.image, (int(at), 0), (int(at), high), colour.tolist(), pen, cv2.LINE_AA)
    elif rng.random() < 0.4:
        at = int(rng.uniform(0.02, 0.06) * wide)
        cv2.line(canvas.image, (at, 0), (at, high), (200, 80, 80), pen, cv2.LINE_AA)


def _print(
    canvas: Canvas,
    x: int,
    y: int,
    size: int,
    words: int,
    colour: tuple[float, ...],
    strength: float = 1.0,
    mirror: bool = False,
) -> tuple[int, int]:
    """Print words in a typeface; return the width and height that they take."""
    from PIL import Image as Picture
    from PIL import ImageDraw, ImageFont

    text = " ".join(canvas.plan.rng.choice(WORDS, words))
    font = ImageFont.load_default(size)
    left, top, right, bottom = (int(v) for v in font.getbbox(text))
    sheet = Picture.new("L", (right - left + 4, bottom - top + 4), 0)
    ImageDraw.Draw(sheet).text((2 - left, 2 - top), text, fill=255, font=font)
    cover = np.asarray(sheet, np.float32) / 255
    if mirror:
        cover = cover[:, ::-1]
    canvas.lay(cover, x, y, colour, strength)
    return cover.shape[1], cover.shape[0]


def _print_through(canvas: Canvas) -> None:
    """Print on the back of the sheet, seen mirrored and faint."""
    rng = canvas.plan.rng
    size, strength = int(rng.integers(22, 46)), rng.uniform(0.1, 0.28)
    y = int(rng.uniform(10, 60))
    while y < canvas.image.shape[0] - size:
        _print(canvas, int(rng.uniform(10, 80)), y, size, 12, (60, 60, 70), strength, mirror=True)
        y += int(size * 1.7)
    canvas.image[:] = cv2.GaussianBlur(canvas.image, (0, 0), 1.2)


def _free_band(canvas: Canvas) -> tuple[int, int]:
    """Rows above or below the writing: the taller of the two."""
    high = canvas.image.shape[0]
    top = min((y for _, y, _, _ in canvas.taken), default=high)
    bottom = max((y + h for _, y, _, h in canvas.taken), default=0)
    return (0, top) if top > high - bottom else (bottom, high)


def _text_near(canvas: Canvas) -> None:
    """Lines of small print and a logo beside the writing."""
    rng = canvas.plan.rng
    low, up = _free_band(canvas)
    size = int(rng.integers(15, 26))
    y = low + 24
    for _ in range(int(rng.integers(1, 5))):
        if y + size + 16 > up:
            break
        _print(canvas, int(rng.uniform(40, 160)), y, size, int(rng.integers(4, 11)), (50, 50, 55))
        y += int(size * 1.6)
    if up - y > 150:
        middle = (int(rng.uniform(900, 1100)), y + 75)
        cv2.circle(canvas.image, middle, 50, (40, 70, 160), -1, cv2.LINE_AA)
        cv2.circle(canvas.image, middle, 26, (230, 230, 230), -1, cv2.LINE_AA)


def _drawn_box(canvas: Canvas) -> None:
    """A frame drawn by hand around all the writing, or one around each line."""
    rng = canvas.plan.rng
    boxes = np.array(canvas.taken)
    pad = rng.uniform(0.25, 0.5) * boxes[:, 3].max()
    low = boxes[:, :2].min(0) - pad
    high = (boxes[:, :2] + boxes[:, 2:]).max(0) + pad
    corners = np.array([low, (high[0], low[1]), high, (low[0], high[1])])
    corners += rng.normal(0, 5, (4, 2))
    pen = max(2, int(rng.uniform(0.04, 0.1) * boxes[:, 3].mean()))
    points = np.r_[corners, corners[:1] + rng.normal(0, 3, (1, 2))].astype(np.int32)
    cv2.polylines(canvas.image, [points], False, canvas.plan.ink, pen, cv2.LINE_AA)


def _signs(canvas: Canvas) -> None:
    """Dots, dashes and underlines near the digits: none of them reads as one."""
    rng, ink = canvas.plan.rng, canvas.plan.ink
    for x, y, w, h in canvas.taken:
        chance = rng.random()
        pen = max(2, int(0.07 * h))
        right = int(x + w + 0.14 * h)
        if chance < 0.12:
            cv2.circle(canvas.image, (right, y + h), pen, ink, -1, cv2.LINE_AA)
        elif chance < 0.2:
            cv2.line(
                canvas.image,
                (right - 4, y + h // 2),
                (right + int(0.1 * h), y + h // 2),
                ink,
                pen,
                cv2.LINE_AA,
            )
    if rng.random() < 0.5:
        x0 = min(x for x, *_ in canvas.taken)
        x1 = max(x + w for x, _, w, _ in canvas.taken)
        y = max(y + h for _, y, _, h in canvas.taken) + int(0.35 * canvas.taken[0][3])
        cv2.line(canvas.image, (x0, y), (x1, y + int(rng.normal(0, 8))), ink, 4, cv2.LINE_AA)


def _rub_gaps(canvas: Canvas) -> None:
    """A pen that skips: thin scratches without ink cross the strokes."""
    rng = canvas.plan.rng
    for x, y, w, h in canvas.taken:
        for _ in range(int(rng.integers(0, 3))):
            ends = rng.uniform((x, y), (x + w, y + h), (2, 2))
            middle, way = ends.mean(0), rng.normal(0, 1, 2)
            way *= 0.25 * h / np.hypot(*way)
            a, b = (middle - way).astype(int), (middle + way).astype(int)
            cv2.line(
                canvas.image,
                a.tolist(),
                b.tolist(),
                canvas.plan.paper,
                max(1, int(rng.uniform(0.02, 0.05) * h)),
                cv2.LINE_AA,
            )


def _dots(canvas: Canvas) -> None:
    """Paper with a grid of printed dots."""
    rng = canvas.plan.rng
    step, colour = rng.uniform(26, 44), (np.array(canvas.plan.paper) * 0.68).tolist()
    high, wide = canvas.image.shape[:2]
    for y in np.arange(rng.uniform(0, step), high, step):
        for x in np.arange(rng.uniform(0, 2), wide, step):
            cv2.circle(canvas.image, (int(x), int(y)), 2, colour, -1, cv2.LINE_AA)


def _stains(canvas: Canvas) -> None:
    """Rings and blots of coffee, some over the writing."""
    rng = canvas.plan.rng
    high, wide = canvas.image.shape[:2]
    for _ in range(int(rng.integers(1, 4))):
        cover = np.zeros((high, wide), np.float32)
        middle = (int(rng.uniform(0, wide)), int(rng.uniform(0, high)))
        radius = int(rng.uniform(90, 240))
        cv2.circle(cover, middle, radius, rng.uniform(0.1, 0.3), -1, cv2.LINE_AA)
        cv2.circle(cover, middle, radius, rng.uniform(0.35, 0.6), int(rng.integers(5, 16)))
        cover = cv2.GaussianBlur(cover, (0, 0), rng.uniform(1.5, 5))[:, :, None]
        canvas.image *= 1 - cover * np.array((0.35, 0.5, 0.7), np.float32)


# --- light and lens ---------------------------------------------------------------------


def _defocus(image: Image, rng: Rng) -> Image:
    radius = int(rng.integers(3, 9))
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1,) * 2).astype(np.float32)
    return cv2.filter2D(image, -1, disc / disc.sum(), borderType=cv2.BORDER_REPLICATE)


def _motion(image: Image, rng: Rng) -> Image:
    length = int(rng.integers(9, 19))
    kernel = np.zeros((length, length), np.float32)
    middle = (length - 1) / 2
    way = np.array([np.cos(a := rng.uniform(0, np.pi)), np.sin(a)]) * middle
    a, b = (middle - way).round().astype(int), (middle + way).round().astype(int)
    cv2.line(kernel, a.tolist(), b.tolist(), 1.0, 1)
    return cv2.filter2D(image, -1, kernel / kernel.sum(), borderType=cv2.BORDER_REPLICATE)


def _shadow(image: Image, outline: np.ndarray, depth: float, softness: float) -> Image:
    mask = np.zeros(image.shape[:2], np.float32)
    cv2.fillPoly(mask, [outline.astype(np.int32)], 1.0)
    mask = cv2.GaussianBlur(mask, (0, 0), softness)
    return image * (1 - depth * mask)[:, :, None]


def _hand_shadow(image: Image, rng: Rng) -> Image:
    high, wide = image.shape[:2]
    start = np.array([rng.uniform(0.3, 1) * wide, high * 1.05])
    for finger in range(int(rng.integers(1, 4))):
        angle = rng.uniform(-2.4, -1.2) + 0.25 * finger
        tip = start + np.array([np.cos(angle), np.sin(angle)]) * rng.uniform(0.4, 0.9) * high
        side = np.array([np.sin(angle), -np.cos(angle)]) * rng.uniform(40, 110)
        outline = np.array([start - side, tip - side * 0.7, tip + side * 0.7, start + side])
        image = _shadow(image, outline, rng.uniform(0.25, 0.5), rng.uniform(4, 25))
    return image


def _phone_shadow(image: Image, rng: Rng) -> Image:
    high, wide = image.shape[:2]
    centre = rng.uniform((0.2 * wide, 0.2 * high), (0.8 * wide, 0.8 * high))
    angle = rng.uniform(0, np.pi)
    size = (rng.uniform(0.3, 0.6) * wide, rng.uniform(0.5, 0.9) * wide)
    outline = cv2.boxPoints((centre.tolist(), size, np.degrees(angle)))
    return _shadow(image, outline, rng.uniform(0.3, 0.6), rng.uniform(3, 20))


def _glare(image: Image, rng: Rng) -> Image:
    high, wide = image.shape[:2]
    rows, columns = np.mgrid[0:high, 0:wide].astype(np.float32)
    x, y = rng.uniform(0.2, 0.8) * wide, rng.uniform(0.2, 0.8) * high
    away = np.hypot((columns - x) / rng.uniform(120, 300), (rows - y) / rng.uniform(80, 220))
    glow = rng.uniform(0.35, 0.75) * np.exp(-(away**2))
    return image + (255 - image) * glow[:, :, None].astype(np.float32)


def _perspective(image: Image, rng: Rng) -> Image:
    high, wide = image.shape[:2]
    square = np.array([(0, 0), (wide, 0), (wide, high), (0, high)], np.float32)
    shift = rng.uniform(0, 0.16, (4, 2)) * (wide, high)
    inward = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)]) * shift
    warp = cv2.getPerspectiveTransform(square, (square + inward).astype(np.float32))
    return cv2.warpPerspective(image, warp, (wide, high), borderMode=cv2.BORDER_REPLICATE)


def _on_desk(image: Image, rng: Rng) -> Image:
    """The sheet lies on a darker desk with a grain; its edges are in the picture."""
    high, wide = image.shape[:2]
    grain = cv2.resize(rng.normal(0, 1, (high // 3, 6)).astype(np.float32), (wide, high))
    desk = np.array(rng.uniform((70, 50, 30), (150, 110, 80)))[None, None] + 9 * grain[:, :, None]
    square = np.array([(0, 0), (wide, 0), (wide, high), (0, high)], np.float32)
    inward = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)]) * rng.uniform(0.02, 0.12, (4, 2))
    target = (square + inward * (wide, high)).astype(np.float32)
    warp = cv2.getPerspectiveTransform(square, target)
    sheet = cv2.warpPerspective(image, warp, (wide, high))
    cover = cv2.warpPerspective(np.ones((high, wide), np.float32), warp, (wide, high))[:, :, None]
    return (desk * (1 - cover) + sheet * cover).astype(np.float32)


def _crumple(image: Image, rng: Rng) -> Image:
    """Facets of changing brightness with sharp folds between them."""
    high, wide = image.shape[:2]
    points = rng.uniform((0, 0), (wide, high), (int(rng.integers(8, 22)), 2))
    tilt = rng.normal(0, 0.00035, (len(points), 2))
    level = rng.normal(0, 0.05, len(points))
    rows, columns = np.mgrid[0:high:2, 0:wide:2].astype(np.float32)
    distance = [(columns - x) ** 2 + (rows - y) ** 2 for x, y in points]
    nearest = np.argmin(distance, axis=0)
    shade = 1 + level[nearest]
    shade += tilt[nearest, 0] * (columns - points[nearest, 0])
    shade += tilt[nearest, 1] * (rows - points[nearest, 1])
    shade = cv2.GaussianBlur(shade.astype(np.float32), (0, 0), 1.2)
    return image * cv2.resize(np.clip(shade, 0.7, 1.15), (wide, high))[:, :, None]


def _folded(image: Image, rng: Rng) -> Image:
    """A sheet folded in four: each part has its own brightness, the folds are dark or bright."""
    high, wide = image.shape[:2]
    x, y = int(rng.uniform(0.35, 0.65) * wide), int(rng.uniform(0.35, 0.65) * high)
    shade = np.ones((high, wide), np.float32)
    for rows in (slice(0, y), slice(y, None)):
        for columns in (slice(0, x), slice(x, None)):
            shade[rows, columns] = rng.uniform(0.72, 1.0)
    shade = cv2.GaussianBlur(shade, (0, 0), 2.5)
    crease = np.zeros((high, wide), np.float32)
    cv2.line(crease, (x, 0), (x + int(rng.normal(0, 12)), high), 1.0, 3, cv2.LINE_AA)
    cv2.line(crease, (0, y), (wide, y + int(rng.normal(0, 12))), 1.0, 3, cv2.LINE_AA)
    shade += rng.uniform(-0.3, 0.15) * cv2.GaussianBlur(crease, (0, 0), 1.5)
    return image * shade[:, :, None]


def _small_photo(image: Image, rng: Rng) -> Image:
    """A picture that was sent around: 560 pixels wide, then enlarged again."""
    high, wide = image.shape[:2]
    small = cv2.resize(image, (560, 420), interpolation=cv2.INTER_AREA)
    small = np.clip(small, 0, 255).astype(np.uint8)
    _, file = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 45])
    small = cv2.imdecode(file, cv2.IMREAD_COLOR).astype(np.float32)
    return cv2.resize(small, (wide, high), interpolation=cv2.INTER_LINEAR)


def _turned(image: Image, rng: Rng) -> Image:
    """The camera was held askew: lines and digits are turned alike."""
    high, wide = image.shape[:2]
    turn = cv2.getRotationMatrix2D((wide / 2, high / 2), rng.uniform(-12, 12), 0.85)
    return cv2.warpAffine(image, turn, (wide, high), borderMode=cv2.BORDER_REPLICATE)


# --- pages without digits ------------------------------------------------------------------


def _texture(canvas: Canvas) -> None:
    rng = canvas.plan.rng
    high, wide = canvas.image.shape[:2]
    cell = int(rng.integers(2, 40))
    coarse = rng.normal(0, 1, (high // cell + 2, wide // cell + 2)).astype(np.float32)
    rough = cv2.resize(coarse, (wide, high), interpolation=cv2.INTER_CUBIC)
    canvas.image[:] += rough[:, :, None] * rng.uniform(4, 18)


def _full_text(canvas: Canvas) -> None:
    rng = canvas.plan.rng
    size, y = int(rng.integers(18, 60)), 40
    while y < 900:
        _print(canvas, int(rng.uniform(30, 90)), y, size, max(2, int(420 / size)), (40, 40, 45))
        y += int(size * 1.6)


def _drawing(canvas: Canvas) -> None:
    rng = canvas.plan.rng
    for _ in range(int(rng.integers(3, 9))):
        points = rng.uniform((60, 60), (1220, 900), (int(rng.integers(3, 12)), 2)).cumsum(0)
        points = points / np.arange(1, len(points) + 1)[:, None] ** rng.uniform(0.5, 1)
        colour = _uniform_colour(rng, 20, 120)
        pen = int(rng.integers(2, 9))
        if rng.random() < 0.5:
            cv2.polylines(canvas.image, [points.astype(np.int32)], True, colour, pen, cv2.LINE_AA)
        else:
            axes = rng.uniform(60, 300, 2).astype(int).tolist()
            middle = points[0].astype(int).tolist()
            cv2.ellipse(canvas.image, middle, axes, rng.uniform(0, 180), 0, 360, colour, pen)


def _noise_face(canvas: Canvas) -> None:
    """Blobs of many sizes, soft and hard, as a face or a landscape has them."""
    rng = canvas.plan.rng
    high, wide = canvas.image.shape[:2]
    total = np.zeros((high, wide), np.float32)
    for octave in range(2, 8):
        coarse = rng.normal(0, 1, (2**octave, 2**octave)).astype(np.float32)
        total += cv2.resize(coarse, (wide, high), interpolation=cv2.INTER_CUBIC) / 1.6**octave
    canvas.image[:] = 128 + 55 * (total / total.std())[:, :, None]


# --- the conditions ------------------------------------------------------------------------


def _set(**values: object) -> Callable[[Plan], None]:
    def change(plan: Plan) -> None:
        for name, value in values.items():
            setattr(plan, name, value)

    return change


def _white_on_black(plan: Plan) -> None:
    plan.paper = _uniform_colour(plan.rng, 15, 55)
    plan.ink = _uniform_colour(plan.rng, 190, 245)


def _coloured_paper(plan: Plan) -> None:
    plan.paper = tuple(plan.rng.permutation([plan.rng.uniform(90, 160), 205, 235]))
    plan.ink = _uniform_colour(plan.rng, 10, 60)


def _coloured_ink(plan: Plan) -> None:
    plan.ink = tuple(plan.rng.permutation([plan.rng.uniform(150, 220), 50, 60]))


def _low_light(plan: Plan) -> None:
    plan.paper = _uniform_colour(plan.rng, 55, 85)
    plan.ink = _uniform_colour(plan.rng, 8, 18)
    plan.noise, plan.shade, plan.quality = plan.rng.uniform(5, 11), 0.5, 75


CONDITIONS: dict[str, Callable[[Plan], None]] = {
    "plain": _set(),
    "defocus": _set(lens=[_defocus]),
    "motion_blur": _set(lens=[_motion], pen=(0.07, 0.13)),
    "show_through": _set(behind=[_print_through]),
    "ruled": _set(behind=[lambda c: _lines_across(c, squared=False)]),
    "squared": _set(behind=[lambda c: _lines_across(c, squared=True)]),
    "hand_shadow": _set(lens=[_hand_shadow]),
    "coloured_paper": _coloured_paper,
    "white_on_black": _white_on_black,
    "thin_pencil": _set(pen=(0.02, 0.035), ink=(120, 120, 122), noise=3.0),
    "thick_marker": _set(pen=(0.15, 0.2), ink=(20, 30, 90), size=(80, 150)),
    "low_light": _low_light,
    "jpeg": _set(quality=18),
    "perspective": _set(lens=[_perspective]),
    "text_nearby": _set(over=[_text_near], lines=(1, 3)),
    "one_digit": _set(lines=(1, 1), per_line=(1, 1), size=(560, 800), pen=(0.06, 0.16)),
    "fifty_small": _set(lines=(8, 10), per_line=(6, 12), size=(26, 36), pen=None),
    "drawn_box": _set(over=[_drawn_box], lines=(1, 2), per_line=(2, 5)),
    "slanting": _set(slope=0.3, per_line=(4, 9), size=(40, 80)),
    "dots_and_dashes": _set(over=[_signs]),
    "phone_shadow": _set(lens=[_phone_shadow]),
    "glare": _set(lens=[_glare]),
    "coloured_ink": _coloured_ink,
    "desk_edge": _set(lens=[_on_desk]),
    "broken_pen": _set(over=[_rub_gaps]),
    "crumpled": _set(lens=[_crumple]),
    "dotted_paper": _set(behind=[_dots]),
    "stained": _set(over=[_stains]),
    "folded": _set(lens=[_folded]),
    "small_photo": _set(lens=[_small_photo]),
    "turned": _set(lens=[_turned]),
    "empty_paper": _set(lines=(0, 0)),
    "empty_ruled": _set(lines=(0, 0), behind=[lambda c: _lines_across(c, squared=False)]),
    "texture": _set(lines=(0, 0), behind=[_texture]),
    "print": _set(lines=(0, 0), behind=[_full_text]),
    "drawing": _set(lines=(0, 0), behind=[_drawing]),
    "noise_face": _set(lines=(0, 0), behind=[_noise_face]),
}
"""Each name with what it changes of the plan of a page."""

WITHOUT_DIGITS = ("empty_paper", "empty_ruled", "texture", "print", "drawing", "noise_face")
"""Conditions whose pages carry no digit at all: ten pages of each make sixty."""
