"""The conditions under which made pages are written and photographed, by name.

`HELD_BACK` are never looked at while the search for digits is tuned; they show what an unforeseen
photograph costs. ``phone_shadow``, ``desk_edge``, ``crumpled`` and ``blind_shadow`` were counted
once before they were tuned for. Pages without digits come in two halves: the kinds of `BLANK` may
be looked at, those of `BLANK_HELD_BACK` (other typefaces, drawings, patterns) may not.
"""

from collections.abc import Callable

import numpy as np

from neocog.learning.pages import drawn, light
from neocog.learning.pages.page import Canvas, Colour, Plan, any_colour

HELD_BACK = (
    "glare", "coloured_ink", "broken_pen", "dotted_paper", "stained", "folded", "small_photo",
    "turned", "plastic_sleeve", "fence_shadow",
)  # fmt: skip

BLANK = ("empty_paper", "empty_ruled", "texture", "print", "drawing", "noise_face")
"""Conditions whose pages carry no digit at all."""

BLANK_HELD_BACK = ("empty_squared", "other_type", "letters_by_hand", "plant", "grain", "cartoon")
"""The same, never looked at."""

WITHOUT_DIGITS = (*BLANK, *BLANK_HELD_BACK)


FACES = {
    "by hand": "dkg Breip femkeklaver Rufscript010 SteveHand Delphine Kristi Humor-Sans "
    "AmaticSC-Regular BecauseWeBuild-Regular BecauseWeLearn-Regular "
    "BecauseWeMentor-Regular BecauseWeOrganize-Regular",
    "printed": "Caladea-Regular EBGaramond12-Regular LinLibertine_R LinLibertine_RB LinBiolinum_R "
    "Inconsolata Cantarell-Regular OpenSans-Regular Lato-Regular",
}
"""Typefaces that only measure, by the names of their files: no training page is printed in one.

Debian's packages fonts-dkg-handwriting, -breip, -femkeklaver, -rufscript, -sjfonts, -kristi,
-humor-sans, -bwht, -ebgaramond, -linuxlibertine, -inconsolata, -cantarell, -open-sans and -lato
have them; font-amatic-sc and font-caladea are on PyPI.
"""


def _set(**values: object) -> Callable[[Plan], None]:
    def change(plan: Plan) -> None:
        for name, value in values.items():
            setattr(plan, name, value)

    return change


def _without_digits(*behind: Callable[[Canvas], None]) -> Callable[[Plan], None]:
    return _set(lines=(0, 0), behind=list(behind))


def _mixed(plan: Plan, *levels: float) -> Colour:
    """Return the three levels, given to red, green and blue by chance."""
    red, green, blue = plan.rng.permutation(np.array(levels)).tolist()
    return red, green, blue


def _white_on_black(plan: Plan) -> None:
    plan.paper = any_colour(plan.rng, 15, 55)
    plan.ink = any_colour(plan.rng, 190, 245)


def _coloured_paper(plan: Plan) -> None:
    plan.paper = _mixed(plan, plan.rng.uniform(90, 160), 205, 235)
    plan.ink = any_colour(plan.rng, 10, 60)


def _coloured_ink(plan: Plan) -> None:
    plan.ink = _mixed(plan, plan.rng.uniform(150, 220), 50, 60)


def _low_light(plan: Plan) -> None:
    plan.paper = any_colour(plan.rng, 55, 85)
    plan.ink = any_colour(plan.rng, 8, 18)
    plan.noise, plan.shade, plan.quality = plan.rng.uniform(5, 11), 0.5, 75


CONDITIONS: dict[str, Callable[[Plan], None]] = {
    "plain": _set(),
    "defocus": _set(lens=[light.defocus]),
    "motion_blur": _set(lens=[light.motion], pen=(0.07, 0.13)),
    "show_through": _set(behind=[drawn.print_through]),
    "ruled": _set(behind=[lambda c: drawn.rule_lines(c, squared=False)]),
    "squared": _set(behind=[lambda c: drawn.rule_lines(c, squared=True)]),
    "hand_shadow": _set(lens=[light.hand_shadow]),
    "coloured_paper": _coloured_paper,
    "white_on_black": _white_on_black,
    "thin_pencil": _set(pen=(0.02, 0.035), ink=(120, 120, 122), noise=3.0),
    "thick_marker": _set(pen=(0.15, 0.2), ink=(20, 30, 90), size=(80, 150)),
    "low_light": _low_light,
    "jpeg": _set(quality=18),
    "perspective": _set(lens=[light.perspective]),
    "text_nearby": _set(over=[drawn.text_near], lines=(1, 3)),
    "one_digit": _set(lines=(1, 1), per_line=(1, 1), size=(560, 800), pen=(0.06, 0.16)),
    "fifty_small": _set(lines=(8, 10), per_line=(6, 12), size=(26, 36), pen=None),
    "drawn_box": _set(over=[drawn.drawn_box], lines=(1, 2), per_line=(2, 5)),
    "slanting": _set(slope=0.3, per_line=(4, 9), size=(40, 80)),
    "dots_and_dashes": _set(over=[drawn.signs]),
    "phone_shadow": _set(lens=[light.phone_shadow]),
    "glare": _set(lens=[light.glare]),
    "coloured_ink": _coloured_ink,
    "desk_edge": _set(lens=[light.on_desk]),
    "broken_pen": _set(over=[drawn.rub_gaps]),
    "crumpled": _set(lens=[light.crumple]),
    "dotted_paper": _set(behind=[drawn.dots]),
    "stained": _set(over=[drawn.stains]),
    "folded": _set(lens=[light.folded]),
    "small_photo": _set(lens=[light.small_photo]),
    "turned": _set(lens=[light.turned]),
    "creased": _set(lens=[light.creased]),
    "taped": _set(over=[drawn.tape]),
    "blotched": _set(over=[drawn.blotches]),
    "blind_shadow": _set(lens=[light.blind_shadow]),
    "fence_shadow": _set(lens=[light.fence_shadow]),
    "plastic_sleeve": _set(lens=[light.plastic_sleeve]),
    "empty_paper": _without_digits(),
    "empty_ruled": _without_digits(lambda c: drawn.rule_lines(c, squared=False)),
    "texture": _without_digits(drawn.texture),
    "print": _without_digits(drawn.full_text),
    "drawing": _without_digits(drawn.drawing),
    "noise_face": _without_digits(drawn.noise_face),
    "empty_squared": _without_digits(lambda c: drawn.rule_lines(c, squared=True)),
    "other_type": _without_digits(drawn.other_type),
    "letters_by_hand": _without_digits(drawn.letters_by_hand),
    "plant": _without_digits(drawn.plant),
    "grain": _without_digits(drawn.grain),
    "cartoon": _without_digits(drawn.cartoon),
}
"""Each name with what it changes of the plan of a page."""
