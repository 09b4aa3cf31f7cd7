"""Controls run a step again where there is a kernel; elsewhere is the twin."""

import builtins

import numpy as np
import pytest

from attention_lab import figures
from attention_lab.axes import ShapeMismatch
from attention_lab.figures.explore import STATIC, WIDGET_VIEW, explore

widgets = pytest.importorskip("ipywidgets", reason="the controls of a kernel")


@pytest.fixture(autouse=True)
def not_static(monkeypatch):
    monkeypatch.delenv(STATIC, raising=False)


@pytest.fixture
def runs():
    return []


@pytest.fixture
def explorer(runs):
    def run(size, title):
        runs.append((size, title))
        return figures.draw_heatmap(np.eye(size), title=title)

    return explore(run, size=[2, 3], title=["plain", "other"])


@pytest.fixture
def displayed(monkeypatch):
    """What a control's run shows, newest last."""
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    return shown


def dropdowns(box):
    return {
        control.description: control for control in box.children[0].children
    }


def test_a_changed_choice_runs_the_step_again(explorer, runs, displayed):
    controls = dropdowns(explorer.controls())
    assert list(controls) == ["size", "title"]
    assert controls["size"].options == (("2", 2), ("3", 3))
    controls["size"].value = 3
    controls["title"].value = "other"
    assert runs[-2:] == [(3, "plain"), (3, "other")]
    assert [figure.title for figure in displayed[-2:]] == ["plain", "other"]


def test_choices_that_do_not_fit_get_a_sentence(displayed):
    def run(heads):
        if 8 % heads:
            raise ShapeMismatch(f"axis E has size 8, which <{heads}> does not")
        return figures.draw_heatmap(np.eye(heads))

    explored = explore(run, heads=[4, 3])
    controls = dropdowns(explored.controls())
    controls["heads"].value = 3
    said = displayed[-1]
    assert str(said) == "axis E has size 8, which <3> does not"
    assert 'role="alert"' in said._repr_html_()
    assert "which &lt;3&gt; does not" in said._repr_html_()
    controls["heads"].value = 4
    assert displayed[-1].passed


def test_a_fault_of_the_run_is_no_sentence():
    explored = explore(
        lambda heads: [][heads], twin=figures.draw_heatmap(np.eye(2)), heads=[1]
    )
    with pytest.raises(IndexError):
        explored.drawn(heads=1)


def test_a_kernel_gets_controls_and_every_viewer_the_twin(explorer):
    bundle = explorer._repr_mimebundle_()
    view = bundle[WIDGET_VIEW]
    assert (view["version_major"], view["version_minor"]) == (2, 0)
    box = explorer._kept[-1]
    assert isinstance(box, widgets.VBox)
    assert view["model_id"] == box.model_id
    assert bundle["text/html"] == explorer.twin._repr_html_()
    assert explorer.twin.title == "plain"
    assert bundle["text/plain"] == repr(explorer) == repr(explorer.twin)


def test_a_page_gets_the_twin_alone(explorer, monkeypatch):
    monkeypatch.setenv(STATIC, "1")
    assert set(explorer._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_without_ipywidgets_the_twin_says_what_to_install(
    explorer, monkeypatch
):
    load = builtins.__import__

    def without_ipywidgets(name, *rest):
        if name == "ipywidgets":
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_ipywidgets)
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert "pip install ipywidgets" in bundle["text/html"]
    assert bundle["text/html"].endswith(explorer.twin._repr_html_())


def test_a_twin_of_ones_own_saves_the_first_run(runs):
    twin = figures.draw_heatmap(np.eye(2))
    explored = explore(lambda size: runs.append(size), twin=twin, size=[2])
    assert explored.twin is twin
    assert runs == []


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({}, "needs at least one choice"),
        ({"h": []}, "h must be a list with at least one option, not \\[\\]"),
        ({"h": "12"}, "h must be a list with at least one option, not '12'"),
    ],
)
def test_no_choice_is_refused(choices, said):
    with pytest.raises(ValueError, match=said):
        explore(lambda **_: figures.draw_heatmap(np.eye(2)), **choices)


def test_a_run_that_gives_no_figure_is_refused():
    with pytest.raises(TypeError, match="run of h=1 returned ndarray, not a"):
        explore(lambda h: np.eye(h), h=[1])
