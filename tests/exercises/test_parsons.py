import numpy as np
import pytest

from attention_lab.exercises.lines import lines_of
from attention_lab.exercises.parsons import Parsons
from attention_lab.gpu import cuda
from attention_lab.verify import Launch
from marking import assert_fails, assert_passes, in_order

THREADS = 4
BARRIER = "cuda.syncthreads()"


def make_reverse(width):
    @cuda.jit
    def reverse_kernel(
        out,
        x,
    ):
        """One thread per element, one block per `width` elements."""
        tile = cuda.shared.array(width, np.float32)
        t = cuda.threadIdx.x
        start = cuda.blockIdx.x * width

        # 1. Load: one element each.
        tile[t] = x[start + t]
        cuda.syncthreads()  # the tile is complete before anyone reads

        # 2. Compute
        last = width - 1
        if t <= last:
            # 3. Store
            out[start + t] = tile[last - t]

    return reverse_kernel  # fmt: skip


reverse_kernel = make_reverse(THREADS)


def launch(blocks):
    x = np.arange(blocks * THREADS, dtype=np.float32)
    return Launch(blocks, THREADS, (np.empty_like(x), x))


def reference(x):
    return x.reshape(-1, THREADS)[:, ::-1].ravel()


@pytest.fixture
def lines(request):
    return Parsons(
        request.node.name,
        reverse_kernel,
        launch,
        reference,
        given=1,
        distractors=["    return", "tile[t] = x[t]"],
        hints={"no hazard": ("Who reads what another wrote?", "Wait first.")},
        sizes=[{"blocks": 1}, {"blocks": 2}],
    )


def test_kernel_is_taken_apart_without_comments():
    found = lines_of(reverse_kernel)
    assert [(line.level, line.goal, line.code) for line in found] == [
        (0, "who am I", "tile = cuda.shared.array(width, np.float32)"),
        (0, "who am I", "t = cuda.threadIdx.x"),
        (0, "who am I", "start = cuda.blockIdx.x * width"),
        (0, "bring in", "tile[t] = x[start + t]"),
        (0, "bring in", "cuda.syncthreads()"),
        (0, "compute", "last = width - 1"),
        (0, "compute", "if t <= last:"),
        (1, "put back", "out[start + t] = tile[last - t]"),
    ]


def test_own_order_passes(lines):
    assert_passes(lines.check(in_order(lines)))


def test_other_order_that_works_passes_as_well(lines):
    feedback = lines.check(
        in_order(
            lines,
            "last = width - 1",
            "start = cuda.blockIdx.x * width",
            "t = cuda.threadIdx.x",
            "tile[t] = x[start + t]",
            BARRIER,
            "if t <= last:",
            "out[start + t] = tile[last - t]",
        )
    )
    assert_passes(feedback)


OWN = [line.code for line in lines_of(reverse_kernel)[1:]]


def moved(code, before=None):
    """Return the own order with one line moved, or without it."""
    order = [line for line in OWN if line != code]
    if before is not None:
        order.insert(order.index(before), code)
    return order


@pytest.mark.parametrize(
    ("order", "check", "words"),
    [
        (moved(BARRIER), "no hazard", "race"),
        (moved(BARRIER, "tile[t] = x[start + t]"), "no hazard", "race"),
        (
            [*OWN[:2], "tile[t] = x[t]", *OWN[3:]],
            "values",
            "is expected",
        ),
        (moved("t = cuda.threadIdx.x", "if t <= last:"), "runs", "`t`"),
        (
            moved("out[start + t] = tile[last - t]"),
            "is Python",
            "expected an indented block",
        ),
        (
            moved("out[start + t] = tile[last - t]", "last = width - 1"),
            "is Python",
            "unexpected indent",
        ),
        (moved(OWN[-1])[:-1], "output written", "never written"),
    ],
)
def test_wrong_order_is_explained_by_what_happens(lines, order, check, words):
    assert_fails(lines.check(in_order(lines, *order)), check, words)


def test_syntax_error_names_the_letter(lines):
    order = in_order(
        lines, *moved("out[start + t] = tile[last - t]", "last = width - 1")
    )
    letter = in_order(lines, "out[start + t] = tile[last - t]")
    what = lines.check(order)["is Python"].what
    assert f"At {letter}, `out[start + t] = tile[last - t]`" in what


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("A B A", "A is there twice"),
        ("A B Z", "There is no line Z: A to I are."),
        ("A1", "There is no line 1"),
        (12, "Answer with letters, such as 'B A', not 12."),
    ],
)
def test_letters_that_cannot_be_read_are_named(lines, answer, words):
    assert_fails(lines.check(answer), "letters", words)


def test_letters_may_be_written_in_several_ways(lines):
    order = in_order(lines)
    for answer in (order.lower(), order.replace(" ", ""), order.split()):
        assert_passes(lines.check(answer))


def test_what_is_not_asked_for_is_not_listed_as_untested(lines):
    for order in (in_order(lines), in_order(lines, *moved(BARRIER))):
        assert lines.check(order).not_tested == {}


def test_lines_that_are_no_python_get_a_hint(lines):
    order = in_order(lines, "out[start + t] = tile[last - t]")
    assert "ends with a colon" in lines.check(order)["is Python"].hint


def test_hints_grow(lines):
    order = in_order(lines, *moved(BARRIER))
    first = lines.check(order)["no hazard"]
    second = lines.check(order)["no hazard"]
    assert first.hint
    assert second.hint
    assert first.hint != second.hint


@pytest.mark.parametrize("answer", [None, "", "…"])
def test_no_letters_are_blank(lines, answer):
    assert lines.check(answer).blank


def test_lines_are_the_same_in_every_run(lines):
    again = Parsons("test.reverse", reverse_kernel, launch, reference, given=1)
    other = Parsons("test.other", reverse_kernel, launch, reference, given=1)
    third = Parsons("test.other", reverse_kernel, launch, reference, given=1)
    assert other.lines == third.lines
    for problem in (again, other, lines):
        assert [line.code for line in problem.lines.values()] != OWN
        assert set(OWN) <= {line.code for line in problem.lines.values()}


def test_lines_are_shown_as_text_and_as_a_table(lines):
    text, table = repr(lines), lines._repr_html_()
    for letter, line in lines.lines.items():
        assert f"{letter}  level {line.level}  " in text
    assert "def reverse_kernel(out, x):\n    tile = cuda.shared" in text
    assert "bring in (2 lines), compute (2 lines), put back (1 line)" in text
    assert "Not every line is needed." in text
    assert table.count('<th scope="row"') == len(lines.lines)
    assert "if t &lt;= last:" in table
    assert 'role="region" aria-label="Lines of ' in table


@pytest.mark.parametrize("given", [7, 8])
def test_too_few_lines_are_refused(given):
    with pytest.raises(ValueError, match="2 to 26 lines"):
        Parsons("test.few", reverse_kernel, launch, reference, given=given)


def test_lines_that_are_alike_are_refused():
    with pytest.raises(ValueError, match="all lines are alike"):
        Parsons(
            "test.alike",
            reverse_kernel,
            launch,
            reference,
            given=8,
            distractors=["t = 1", "t = 1"],
        )
