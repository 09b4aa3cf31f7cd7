"""Words about a failure: the likely mistake, and a hint that grows."""

from collections import Counter
from dataclasses import replace

from attention_lab.verify.known_mistakes import known_mistakes
from attention_lab.verify.report import Check, Report

_failed_before: Counter[tuple[str, str]] = Counter()


def with_words(check: Check, times_failed_before: int = 0) -> Check:
    """Add the likely mistake, a hint and the link to a failed check.

    The first failure of a check gets the small hint, later ones the bigger.
    """
    if check.passed or check.mistake is None:
        return check
    cards = known_mistakes()
    card = cards[check.mistake]
    likely = card.cause
    if check.also:
        likely = f"{likely} And: {cards[check.also].cause}"
    hint = card.bigger_hint if times_failed_before else card.hint
    return replace(check, likely=likely, hint=hint, link=card.link)


def with_growing_hints(report: Report, owner: str) -> Report:
    """Add words to a report, and remember what failed for the next time.

    `owner` names whose failures are counted: the verified thing's full name.
    """
    checks = []
    for check in report.checks:
        key = (owner, check.name)
        checks.append(with_words(check, _failed_before[key]))
        if check.passed:
            del _failed_before[key]
        else:
            _failed_before[key] += 1
    return replace(report, checks=tuple(checks))
