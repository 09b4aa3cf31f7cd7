"""How numbers are written inside a picture: short, and never ambiguous."""

import math


def decimal_text(value: float, places: int = 2) -> str:
    """Return a number with a fixed count of decimals and a real minus sign.

    Examples
    --------
    >>> decimal_text(-0.714), decimal_text(-0.001), decimal_text(-math.inf)
    ('−0.71', '0.00', '−∞')
    >>> decimal_text(123456.0)
    '1.2e5'
    """
    value = float(value)
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) >= 10 ** (5 - places):
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    text = f"{value:.{places}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", "−")


def fixed_text(value: float, width: int = 5) -> str:
    """Return a number with up to two decimals in at most `width` characters.

    Examples
    --------
    >>> [fixed_text(v) for v in (-1.234, 12.345, -123.45, 12345.6, -1e6)]
    ['−1.23', '12.35', '−123', '12346', '−1e6']
    """
    for places in (2, 1, 0):
        text = decimal_text(value, places)
        if len(text) <= width and "e" not in text:
            return text
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}".replace("-", "−")


def cell_text(value: float) -> str:
    """Return a number in at most four characters, for a small cell.

    Examples
    --------
    >>> [cell_text(v) for v in (0.0, 2.0, 0.52, -0.52, -1.26, 12.3, -140.2)]
    ['0', '2', '.5', '−.5', '−1.3', '12', '−140']
    >>> cell_text(54321.0), cell_text(-math.inf)
    ('5e4', '−∞')
    """
    value = float(value)
    if math.isinf(value) or (value.is_integer() and abs(value) < 1000):
        return decimal_text(value, 0)
    if abs(value) < 9.95:
        return _without_zero(decimal_text(value, 1))
    if abs(value) < 999.5:
        return decimal_text(value, 0)
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}".replace("-", "−")


def weight_text(weight: float) -> str:
    """Return a weight in [0, 1] in at most three characters.

    Examples
    --------
    >>> [weight_text(w) for w in (0.0, 0.001, 0.413, 0.999, 1.0)]
    ['0', '.00', '.41', '1.0', '1']
    """
    if weight in (0, 1):
        return str(int(weight))
    text = f"{weight:.2f}"
    return "1.0" if text == "1.00" else _without_zero(text)


def error_text(error: float) -> str:
    """Return an error or a tolerance with two digits.

    Examples
    --------
    >>> error_text(0.0), error_text(1.234e-7), error_text(0.5)
    ('0', '1.2e-07', '0.5')
    """
    return f"{error:.2g}"


def _without_zero(text: str) -> str:
    """Drop the zero before the point: .5 rather than 0.5."""
    sign = "−" if text.startswith("−") else ""
    digits = text.removeprefix("−")
    return sign + (digits[1:] if digits.startswith("0.") else digits)
