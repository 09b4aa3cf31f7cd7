"""The verdicts of the page `claims_checked`: a claim, its evidence, a verdict.

`claims.toml` has the texts: who says what, in our words, the verdict that the
page gives and the correction. The page brings the evidence. A verdict follows
from the evidence alone, and a page whose text says another one cannot be built.
"""

import html
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

VERDICTS = ("right", "wrong", "unclear")
_MARKS = {"right": "✓", "wrong": "✗", "unclear": "?"}


class WrongVerdict(AssertionError):  # noqa: N818 - said to a learner
    """The evidence says otherwise than the text of `claims.toml`."""


@dataclass(frozen=True)
class Claim:
    """One claim: where it stands, what it says, and what is said to it.

    `correction` is what to say instead, or why the claim holds.
    """

    id: str
    source: str
    says: str
    verdict: str
    correction: str


@cache
def claims() -> dict[str, Claim]:
    """Read the texts; id -> claim, in the order of the page.

    Raises
    ------
    ValueError
        If a verdict is none of `VERDICTS`.

    Examples
    --------
    >>> claims()["heads-are-blocks"].verdict
    'right'
    """
    text = Path(__file__).with_suffix(".toml").read_text("utf-8")
    found = {
        name: Claim(id=name, **entry)
        for name, entry in tomllib.loads(text).items()
    }
    for claim in found.values():
        if claim.verdict not in VERDICTS:
            raise ValueError(
                f"{claim.id}: the verdict must be one of {VERDICTS}, not "
                f"{claim.verdict!r}"
            )
    return found


def verdict_of(evidence: Mapping[str, bool]) -> str:
    """Return what the evidence says about a claim.

    Parameters
    ----------
    evidence : sentences that follow from the claim, each with whether it held
        when it was run. All held: right. None held: wrong. Otherwise, and
        without any: unclear.

    Raises
    ------
    ValueError
        If a sentence has anything but True or False, such as NaN.

    Examples
    --------
    >>> verdict_of({"rows sum to 1": True, "columns sum to 1": False})
    'unclear'
    """
    for sentence, held in evidence.items():
        if not isinstance(held, bool | np.bool_):
            raise ValueError(
                f"evidence {sentence!r} must be True or False, not {held!r}"
            )
    if evidence and all(evidence.values()):
        return "right"
    if evidence and not any(evidence.values()):
        return "wrong"
    return "unclear"


class Judge:
    """Collects the verdicts of a page; shows them as a table."""

    def __init__(self) -> None:
        self.evidence: dict[str, dict[str, bool]] = {}

    def __call__(self, name: str, evidence: Mapping[str, bool]) -> None:
        """Judge one claim, print the verdict and keep it for the table.

        Raises
        ------
        KeyError
            If there is no claim of that name.
        WrongVerdict
            If the evidence says otherwise than the text.
        ValueError
            See `verdict_of`; also if the claim was judged before.
        """
        if name not in claims():
            raise KeyError(f"there is no claim {name!r} in claims.toml")
        if name in self.evidence:
            raise ValueError(f"the claim {name!r} was judged before")
        claim, found = claims()[name], verdict_of(evidence)
        if found != claim.verdict:
            held = "; ".join(f"{s}: {bool(h)}" for s, h in evidence.items())
            raise WrongVerdict(
                f"{name}: the evidence says {found} ({held or 'none'}), the "
                f"text says {claim.verdict}"
            )
        self.evidence[name] = {s: bool(h) for s, h in evidence.items()}
        print(f"{_MARKS[found]} {found}: {claim.says}")
        for line in _tests(self.evidence[name]):
            print(f"    {line}")

    def claim(self, name: str) -> Claim:
        """Return the text of a claim that was judged."""
        if name not in self.evidence:
            raise KeyError(f"the claim {name!r} was not judged")
        return claims()[name]

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the claims that nobody has judged yet."""
        return tuple(name for name in claims() if name not in self.evidence)

    def __str__(self) -> str:
        rows = []
        for claim in self._judged():
            mark = _MARKS[claim.verdict]
            rows += [
                f"{mark} {claim.verdict} · {claim.source}: {claim.says}",
                f"    {claim.correction}",
            ]
        return "\n".join(rows) or "nothing is judged yet"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Show a table of two columns, which fits on a phone."""
        rows = []
        for claim in self._judged():
            tests = html.escape("; ".join(_tests(self.evidence[claim.id])))
            rows.append(
                '<tr style="vertical-align: top">'
                '<td style="white-space: nowrap">'
                f"{_MARKS[claim.verdict]} {claim.verdict}</td>"
                f'<td style="text-align: left">{html.escape(claim.source)}: '
                f"<strong>{html.escape(claim.says)}</strong><br>"
                f"{html.escape(claim.correction)}<br><em>{tests}</em></td></tr>"
            )
        head = '<th scope="col">verdict</th><th scope="col">claim</th>'
        return (
            f'<section class="verify-report"><table><thead><tr>{head}</tr>'
            f"</thead><tbody>{''.join(rows)}</tbody></table></section>"
        )

    def _judged(self) -> list[Claim]:
        return [claims()[name] for name in claims() if name in self.evidence]


def _tests(evidence: Mapping[str, bool]) -> list[str]:
    if not evidence:
        return ["not tested: no run can tell"]
    return [
        f"{'held' if held else 'did not hold'}: {sentence}"
        for sentence, held in evidence.items()
    ]
