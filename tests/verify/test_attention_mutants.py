"""Nobody passes by luck: the battery over right functions, damaged by a rule.

`mutate` changes one operation of six right functions. Some changes do nothing
that anyone could see; `mutate_equivalent` gives the reason for each.
"""

from mutate import mutants
from mutate_equivalent import REASONS

from attention_lab.verify.attention.kinds import KINDS
from attention_lab.verify.attention.signature import read_subject

#: Every third or so of all of them; all would take five minutes.
COUNT = 360


def first_failure(function):
    """Return the name of the first check that fails, or None."""
    subject = read_subject(function, None)
    subject.explain = False
    for kind in KINDS:
        if all(map(subject.supports, kind.needs)):
            check = kind.run(subject, kind.name)
            if not check.passed:
                return kind.name
    return None


def test_the_battery_kills_98_of_100_mutants_that_differ():
    tried = {
        mutant.label: first_failure(mutant.function)
        for mutant in mutants(COUNT)
    }
    alive = [label for label, killer in tried.items() if killer is None]
    same = [label for label in alive if label in REASONS]
    differ = len(tried) - len(same)
    rate = (differ - (len(alive) - len(same))) / differ
    print(
        f"{len(tried)} mutants, {len(tried) - len(alive)} killed "
        f"({(len(tried) - len(alive)) / len(tried):.1%}), {len(same)} do "
        f"nothing that could be seen; kill rate of the others {rate:.1%}"
    )
    for label in alive:
        print(f"  alive: {label}: {REASONS.get(label, 'NO REASON KNOWN')}")
    assert len(tried) >= 200
    assert rate >= 0.98
