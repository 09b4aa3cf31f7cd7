"""Claims and verdicts: computed, complete, and about the posts' own code."""

import ast
import importlib.util
import re
from collections import Counter
from pathlib import Path

import jupytext
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attention_lab.verify import claims as module
from attention_lab.verify.claims import (
    VERDICTS,
    Judge,
    WrongVerdict,
    claims,
    verdict_of,
)
from attention_lab.verify.exponents import integer_exponents
from attention_lab.verify.known_mistakes import known_mistakes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "book" / "claims_checked.md").read_text(encoding="utf-8")
POSTS = ROOT / "tests" / "data" / "source_posts"


# -- The verdict -----------------------------------------------------------


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        ({"a": True}, "right"),
        ({"a": np.True_, "b": True}, "right"),
        ({"a": False, "b": np.False_}, "wrong"),
        ({"a": True, "b": False}, "unclear"),
        ({}, "unclear"),
    ],
)
def test_verdict_follows_from_the_evidence(evidence, verdict):
    assert verdict_of(evidence) == verdict


@pytest.mark.parametrize(
    "held", [np.nan, 1, None, "yes", torch.tensor(True), np.array([True])]
)
def test_evidence_that_is_not_a_truth_value_is_refused(held):
    with pytest.raises(ValueError, match="'a' must be True or False"):
        verdict_of({"a": held})


@pytest.mark.parametrize("name", claims())
def test_no_verdict_but_the_stated_one_is_accepted(name):
    for evidence in ({"a": True}, {"a": False}, {"a": True, "b": False}):
        if verdict_of(evidence) == claims()[name].verdict:
            Judge()(name, evidence)
        else:
            with pytest.raises(WrongVerdict, match=f"{name}: the evidence"):
                Judge()(name, evidence)


def test_unknown_claims_and_second_judgements_are_refused():
    judge = Judge()
    with pytest.raises(KeyError, match="no claim 'flat-earth'"):
        judge("flat-earth", {"a": True})
    judge("formula", {"a": True})
    with pytest.raises(ValueError, match="'formula' was judged before"):
        judge("formula", {"a": True})
    assert judge.claim("formula").verdict == "right"
    with pytest.raises(KeyError, match="'proof' was not judged"):
        judge.claim("proof")


def test_a_refused_verdict_is_not_kept():
    judge = Judge()
    with pytest.raises(WrongVerdict):
        judge("formula", {"a": False})
    assert "formula" in judge.missing
    assert str(judge) == "nothing is judged yet"


def test_table_shows_each_judged_claim_once_and_escapes(capsys):
    judge = Judge()
    judge("formula", {"a < b": True})
    judge("advice", {})
    table = judge._repr_html_()
    assert table.count("<tr") == 1 + 2
    assert "held: a &lt; b" in table
    assert "not tested: no run can tell" in table
    assert "✓ right · post 1, section 1" in str(judge)
    assert "✓ right: Attention is" in capsys.readouterr().out
    assert len(judge.missing) == len(claims()) - 2


def test_unknown_verdict_in_the_text_is_refused(tmp_path, monkeypatch):
    text = '[a]\nsource = "s"\nsays = "s"\nverdict = "maybe"\ncorrection = "c"'
    (tmp_path / "claims.toml").write_text(text)
    monkeypatch.setattr(module, "__file__", str(tmp_path / "claims.py"))
    with pytest.raises(ValueError, match="a: the verdict must be one of"):
        claims.__wrapped__()


# -- The texts and the page ------------------------------------------------


@pytest.mark.parametrize("name", claims())
def test_every_text_is_filled_in(name):
    claim = claims()[name]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    for text in (claim.source, claim.says, claim.correction):
        assert text == text.strip()
        assert text
    assert claim.says.endswith(".")
    assert claim.correction.endswith((".", ")"))


def test_every_verdict_occurs():
    counts = Counter(claim.verdict for claim in claims().values())
    assert set(counts) == set(VERDICTS)


def judged_on_the_page(text):
    """Return the names that the page's cells hand to `judge`, in order."""
    return [
        node.args[0].value
        for cell in jupytext.reads(text, fmt="md:myst").cells
        if cell.cell_type == "code"
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "judge"
    ]


def constant_evidence(text):
    """Find evidence that is written down instead of computed."""
    return [
        ast.unparse(value)
        for cell in jupytext.reads(text, fmt="md:myst").cells
        if cell.cell_type == "code"
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "judge"
        and isinstance(node.args[1], ast.Dict)
        for value in node.args[1].values
        if isinstance(value, ast.Constant)
    ]


def test_the_page_judges_every_claim_once():
    assert Counter(judged_on_the_page(PAGE)) == Counter(list(claims()))


def test_no_evidence_on_the_page_is_a_constant():
    assert constant_evidence(PAGE) == []
    planted = '```{code-cell} ipython3\njudge("formula", {"a": True})\n```\n'
    assert constant_evidence(planted) == ["True"]


# -- What stands in for the listings ---------------------------------------


def listing(number):
    path = POSTS / f"post_{number}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded.MultiHeadAttention


def exhibit(name):
    return known_mistakes()[name].exhibit()


FILLS = exhibit("masked-row-poisons-weights")


class StandIn1(exhibit("module-query-length-for-keys"), FILLS):
    """As on the page."""


class StandIn2(exhibit("reentrant-checkpoint"), FILLS):
    """As on the page."""


@pytest.fixture
def first():
    torch.manual_seed(0)
    theirs, ours = listing(1)(15, 3).double(), StandIn1(15, 3).double()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def test_stand_in_of_the_first_listing_gives_its_numbers(first):
    theirs, ours = first
    x = torch.randn(2, 5, 15).double()
    mask = torch.ones(5, 5).tril() > 0
    for keep in (None, mask, mask & (torch.arange(5) != 3)[:, None]):
        assert_close(ours(x, x, x, keep), theirs(x, x, x, keep), equal_nan=True)


def test_stand_in_of_the_first_listing_fails_where_it_fails(first):
    query, key = torch.randn(1, 5, 15).double(), torch.randn(1, 7, 15).double()
    for attend in first:
        with pytest.raises(RuntimeError, match="is invalid for input of size"):
            attend(query, key, key)


@pytest.fixture
def second():
    torch.manual_seed(0)
    theirs, ours = listing(2)(15, 3).double(), StandIn2(15, 3).double()
    for part in ("weight", "bias"):
        packed = getattr(theirs.qkv, part).detach().chunk(3)
        for name, own in zip("qkv", packed, strict=True):
            getattr(getattr(ours, f"{name}_proj"), part).data = own.clone()
    ours.out_proj.load_state_dict(theirs.out.state_dict())
    return theirs, ours


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.filterwarnings("ignore:.*use_reentrant parameter should be passed")
def test_stand_in_of_the_second_listing_gives_its_numbers(second):
    theirs, ours = second
    x = torch.randn(2, 5, 15).double()
    mask = torch.ones(5, 5).tril() > 0
    for keep in (None, mask, mask & (torch.arange(5) != 3)[:, None]):
        assert_close(ours(x, keep), theirs(x, keep), equal_nan=True)
    for attend in second:
        assert not attend(x).requires_grad  # so no weight gets a gradient
        needs = x.clone().requires_grad_()
        attend(needs).square().sum().backward()
        assert all(p.grad is not None for p in attend.parameters())


@pytest.mark.filterwarnings("ignore:.*use_reentrant parameter should be passed")
def test_both_second_listings_recompute_after_eval_too(second):
    for attend, first_layer in zip(second, ("qkv", "q_proj"), strict=True):
        calls = []
        layer = getattr(attend.eval(), first_layer)
        layer.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        x = torch.randn(1, 3, 15).double().requires_grad_()
        attend(x).sum().backward()
        assert len(calls) == 2


# -- Exponents -------------------------------------------------------------

GRID = [(n, d) for n in (3, 5, 8) for d in (2, 7, 11)]


def test_exponents_of_a_power_are_found():
    counts = {(n, d): 6 * n**3 * d for n, d in GRID}
    assert integer_exponents(counts, "nd") == {"n": 3, "d": 1}
    constant = dict.fromkeys(GRID, 4)
    assert integer_exponents(constant, "nd") == {"n": 0, "d": 0}


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({(n, d): n * n * d + n * d * d for n, d in GRID}, "no power"),
        ({(n, d): round(100 * n**1.5) for n, d in GRID}, "no power"),
        # Squares have whole square roots: an exact power of one half.
        ({(n * n, d): n for n, d in GRID}, "the exponent of n is 0.5"),
        # Even in log n around its middle: the line through it is flat.
        ({(2, 2): 3, (2, 8): 3, (4, 2): 6, (4, 8): 6, (8, 2): 3, (8, 8): 3},
         "no power of 'nd'"),
        ({(n, 2): n for n in (3, 5, 8)}, "do not determine"),
        ({(3, 2): 0, (5, 2): 1, (5, 3): 1}, "must be positive"),
        ({(3,): 1, (5,): 2}, "one size for each of 'nd'"),
        ({}, "one size for each of 'nd'"),
    ],
)  # fmt: skip
def test_counts_that_are_no_power_are_refused(counts, says):
    with pytest.raises(ValueError, match=says):
        integer_exponents(counts, "nd")
