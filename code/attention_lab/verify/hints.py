"""Words about a failure: the likely mistake, and a hint that grows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from attention_lab.verify.known_mistakes import known_mistakes
from attention_lab.verify.report import Check, Report

_failed_before: Counter[tuple[str, str]] = Counter()


def with_words(
    check: Check,
    times_failed_before: int = 0,
    hints: tuple[str, str] | None = None,
) -> Check:
    """Add the likely mistake, a hint and the link to a failed check.

    The first failure of a check gets the small hint, later ones the bigger.
    `hints` are these two for a failure that is no known mistake.
    """
    if check.passed:
        return check
    if check.mistake is None:
        if hints is None:
            return check
        return replace(check, hint=hints[min(times_failed_before, 1)])
    cards = known_mistakes()
    card = cards[check.mistake]
    likely = card.cause
    if check.also:
        likely = f"{likely} And: {cards[check.also].cause}"
    hint = card.bigger_hint if times_failed_before else card.hint
    return replace(check, likely=likely, hint=hint, link=card.link)


def with_growing_hints(
    report: Report,
    owner: str,
    hints: Mapping[str, tuple[str, str]] | None = None,
) -> Report:
    """Add words to a report, and remember what failed for the next time.

    `owner` names whose failures are counted: the verified thing's full name.
    `hints` maps names of checks to a hint and a bigger one, for failures that
    are no known mistake.
    """
    checks = []
    for check in report.checks:
        key = (owner, check.name)
        own = (hints or {}).get(check.name)
        checks.append(with_words(check, _failed_before[key], own))
        if check.passed:
            del _failed_before[key]
        else:
            _failed_before[key] += 1
    return replace(report, checks=tuple(checks))
