import itertools

import numpy as np
import pytest

from attention_lab.axes import AXES
from attention_lab.figures.palette import (
    AXIS_COLORS,
    INK,
    MUTED,
    OPACITY,
    ROLE_COLORS,
    STATE_COLORS,
    blend,
    contrast,
    ink_on,
    luminance,
    pixel_color,
    token_color,
    value_color,
    weight_color,
)

LIGHT, DARK = ("#ffffff", "#1f2328"), ("#121212", "#e6e6e6")


def test_contrast_agrees_with_the_published_example():
    # WebAIM's checker gives 4.48 for #777777 on white.
    np.testing.assert_allclose(contrast("#777777", "#ffffff"), 4.48, atol=0.005)


def test_every_axis_has_one_colour():
    assert set(AXIS_COLORS) == set(AXES)
    assert len(set(AXIS_COLORS.values())) == len(AXES)


@pytest.mark.parametrize("color", [*AXIS_COLORS.values(),
                                   *ROLE_COLORS.values()])  # fmt: skip
def test_chips_carry_white_letters_and_stand_out_in_both_themes(color):
    assert ink_on(color) == "#ffffff"
    assert contrast("#ffffff", color) >= 4.5
    assert contrast(color, LIGHT[0]) >= 3
    assert contrast(color, DARK[0]) >= 3


@pytest.mark.parametrize("color", STATE_COLORS.values())
def test_states_carry_readable_text(color):
    assert contrast(ink_on(color), color) >= 4.5


def test_two_colours_of_one_kind_are_never_close():
    for colors in (AXIS_COLORS, ROLE_COLORS, STATE_COLORS):
        for one, other in itertools.combinations(colors.values(), 2):
            apart = sum(
                abs(int(one[i : i + 2], 16) - int(other[i : i + 2], 16))
                for i in (1, 3, 5)
            )
            assert apart > 40, (one, other)


@pytest.mark.parametrize(("page", "ink"), [LIGHT, DARK])
@pytest.mark.parametrize("kind", [INK, MUTED])
def test_text_on_the_page_can_be_read_in_both_themes(page, ink, kind):
    assert contrast(blend(ink, page, OPACITY[kind]), page) >= 4.5


@pytest.mark.parametrize("ramp", [weight_color, pixel_color, value_color])
def test_ramps_darken_all_the_way_and_stay_readable(ramp):
    places = np.linspace(0, 1, 41)
    colors = [ramp(float(place)) for place in places]
    steps = np.diff([luminance(color) for color in colors])
    assert steps.max() < 0
    assert luminance(colors[0]) - luminance(colors[-1]) > 0.5
    assert min(contrast(ink_on(color), color) for color in colors) >= 4.5


def test_negative_values_are_blue_and_positive_ones_amber():
    negative, positive = value_color(-0.7), value_color(0.7)
    assert int(negative[5:], 16) > int(negative[1:3], 16)
    assert int(positive[1:3], 16) > int(positive[5:], 16)
    assert value_color(-1e-9) == value_color(0.0)


def test_tokens_get_darker_in_their_order():
    shades = [luminance(token_color(token, 5)) for token in range(5)]
    assert shades == sorted(shades, reverse=True)
    assert len(set(shades)) == 5
    assert token_color(0, 1).startswith("#")


def test_a_weight_beyond_the_ramp_takes_its_end():
    assert weight_color(1.5) == weight_color(1.0)
    assert weight_color(-0.5) == weight_color(0.0)
