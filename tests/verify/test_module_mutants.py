"""Nobody passes by luck: right modules with one change made by a script."""

import linecache
from collections import Counter

from module_mutants import mutants
from numpy.testing import assert_array_less

from attention_lab.verify.module import masks, values
from attention_lab.verify.module.battery import verify_module

E, H = 15, 3  # D = 5
EVERY = 6  # of all mutants one in six, so that the test stays short

NEVER_CAUSAL = "a right module that is not causal, and never said that it is"
#: Why a surviving change is no mistake: (class or "", part of the change).
EQUIVALENT = {
    ("", "-2 -> 2"): "axis 2 of four axes is axis -2",
    ("", "1e+30 -> 2e+30"): "both are far below any score",
    ("", "1000000000.0 -> 2000000000.0"): "both are far below any score",
    ("NanoGptStyle", "line 27: k -> v"): "k and v have the same width",
    ("Head", "line 9: k -> v"): "k and v have the same width",
    ("EinopsStyle", "line 13: q -> k"): "q and k have the same width",
    ("ValuesFirst", "line 16: q -> k"): "q and k have the same width",
    ("Gpt2Style", "line 14: q -> k"): "q and k have the same width",
    ("AnnotatedStyle", "line 11: query -> key"): "the batch is the same",
    ("NanoGptStyle", "line 28: 0 -> -1"): NEVER_CAUSAL,
    ("NanoGptStyle", "line 24: True -> False"): NEVER_CAUSAL,
    ("EinopsStyle", "-> 'b n (h p d)"): "another layout, which a note names",
    ("EinopsStyle", "bhjd->bhji"): "the order k, q, v, which a note names",
}


def reason(name, what):
    """Return why a change leaves a right module right, or None."""
    for (kind, part), why in EQUIVALENT.items():
        if kind in ("", name) and part in what:
            return why
    return None


def builders(name, source):
    """Return how the changed class is built, in every way it has."""
    space = {"__name__": f"mutant_{name}"}
    # Its classes must find their source, as those of a file do.
    linecache.cache["<mutant>"] = (len(source), None, source.split("\n"), "")
    exec(compile(source, "<mutant>", "exec"), space)
    kind = space["LoopOverHeads" if name == "Head" else name]
    if name != "NanoGptStyle":
        return [kind]
    return [kind, lambda embed_dim, num_heads: kind(E, H, flash=True)]


def survives(name, source):
    for build in builders(name, source):
        report = verify_module(
            build,
            E,
            H,
            mask_means="added" if name == "Gpt2Style" else "keep",
            isolate=False,
            seconds=300,
        )
        if not report.passed:
            return False
    return True


def test_mutants_are_killed(monkeypatch, capsys):
    # Naming takes most of the time, and does not decide who is killed.
    for module in (values, masks):
        monkeypatch.setattr(module, "diagnose", lambda *_: None)
    made, killed, survivors = Counter(), 0, []
    for name, what, source in list(mutants())[::EVERY]:
        made[name] += 1
        if survives(name, source):
            survivors.append((name, what, reason(name, what)))
        else:
            killed += 1
    unexplained = [s for s in survivors if s[2] is None]
    rate = killed / (killed + len(unexplained))
    with capsys.disabled():
        print(f"\n{sum(made.values())} mutants of {len(made)} modules")
        print(f"killed {killed}, kill rate {rate:.1%} without the equivalent")
        for name, what, why in survivors:
            print(f"  survives: {name}, {what}: {why or 'UNEXPLAINED'}")
    assert_array_less(59, sum(made.values()))
    assert rate >= 0.98
