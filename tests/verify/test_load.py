import sys
import types
from pathlib import Path

import pytest

from attention_lab.verify.command_line.load import (
    CannotVerify,
    build_module,
    load,
    split_target,
)


@pytest.fixture(autouse=True)
def imports_are_undone():
    path, modules = list(sys.path), dict(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        if name.startswith(("verified_file_", "lecture", "helper_of")):
            del sys.modules[name]


def file_with(folder, text, name="mine.py"):
    path = folder / name
    path.write_text(text)
    return path


def refusal(folder, text, name="attend"):
    with pytest.raises(CannotVerify) as refused:
        load(file_with(folder, text), name)
    return str(refused.value)


# Which file, which name ----------------------------------------------------


def test_a_target_is_a_path_and_a_name(tmp_path, monkeypatch):
    path = file_with(tmp_path, "")
    assert split_target(f"{path}:attend") == (path, "attend")
    assert split_target(f"{path}:Layer.attend") == (path, "Layer.attend")
    monkeypatch.chdir(tmp_path)
    assert split_target("mine.py:attend") == (path, "attend")


@pytest.mark.parametrize(
    "target", ["mine.py", "attend", ":attend", "mine.py:", "mine.py:a b", ""]
)
def test_what_is_no_target_is_refused(target):
    with pytest.raises(CannotVerify, match=r"as FILE\.py:NAME, such as"):
        split_target(target)


def test_a_colon_in_the_path_is_part_of_it():
    # As in C:\work\mine.py:attend.
    with pytest.raises(CannotVerify, match=r"there is no file C:\\mine\.py"):
        split_target(r"C:\mine.py:attend")


def test_a_file_of_another_kind_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(CannotVerify, match=r"verify_attention\(attend\) in it"):
        split_target(f"{tmp_path}/mine.ipynb:attend")
    with pytest.raises(CannotVerify, match="is a folder"):
        split_target(f"{tmp_path}:attend")
    with pytest.raises(CannotVerify, match="must be a Python file"):
        split_target(f"{tmp_path}/mine.txt:attend")
    with pytest.raises(CannotVerify, match="there is no file"):
        split_target(f"{tmp_path}/none.py:attend")


# Importing -----------------------------------------------------------------


def test_a_function_is_found(tmp_path):
    path = file_with(tmp_path, "def attend(q): return q + 1")
    assert load(path, "attend")(1) == 2


def test_a_method_and_an_object_are_found(tmp_path):
    path = file_with(
        tmp_path,
        "class Layer:\n"
        "    @staticmethod\n    def attend(q): return q\n"
        "    def __call__(self, q): return q\n"
        "layer = Layer()",
    )
    assert load(path, "Layer.attend")(3) == 3
    assert load(path, "layer")(4) == 4


def test_the_folder_of_the_file_can_be_imported_from(tmp_path):
    file_with(tmp_path, "answer = 42", "helper_of_mine.py")
    path = file_with(
        tmp_path, "from helper_of_mine import answer\ndef f(): return answer"
    )
    assert load(path, "f")() == 42


def test_relative_imports_work_in_a_package(tmp_path):
    package = tmp_path / "lecture" / "week"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        file_with(folder, "", "__init__.py")
    file_with(package.parent, "answer = 42", "common.py")
    path = file_with(
        package, "from ..common import answer\ndef f(): return answer"
    )
    assert load(path, "f")() == 42
    assert load(path, "f").__module__ == "lecture.week.mine"


def test_a_file_may_be_called_like_a_module_of_python(tmp_path):
    path = file_with(tmp_path, "def f(): return 1", "random.py")
    assert load(path, "f")() == 1
    assert (
        sys.modules.get("random") is not sys.modules[load(path, "f").__module__]
    )


def test_dataclasses_of_the_file_work(tmp_path):
    path = file_with(
        tmp_path,
        "from __future__ import annotations\n"
        "import dataclasses\n"
        "@dataclasses.dataclass\nclass A:\n    x: int\n",
    )
    assert load(path, "A")(3).x == 3


def test_what_is_only_a_script_does_not_run(tmp_path):
    path = file_with(
        tmp_path, "def f(): pass\nif __name__ == '__main__': raise ValueError"
    )
    assert load(path, "f")() is None


def test_a_syntax_error_is_shown(tmp_path):
    said = refusal(tmp_path, "x = 1\ndef attend(q:\n    return q\n")
    assert said == (
        "mine.py could not be imported: line 2 of mine.py: "
        "'(' was never closed: def attend(q:"
    )


def test_a_missing_module_is_named_with_the_line(tmp_path):
    said = refusal(tmp_path, "\nimport not_installed_anywhere")
    assert said == (
        "mine.py could not be imported. It raised ModuleNotFoundError: No "
        "module named 'not_installed_anywhere' (line 2 of mine.py)"
    )


def test_an_exit_while_importing_is_explained(tmp_path):
    said = refusal(tmp_path, "import sys\nsys.exit('done')")
    assert "It called sys.exit(done) (line 2 of mine.py)" in said
    assert "__main__" in said


def test_a_file_that_could_not_be_imported_leaves_no_module(tmp_path):
    refusal(tmp_path, "1 / 0")
    assert "verified_file_mine" not in sys.modules


def test_a_missing_name_gets_the_nearest(tmp_path):
    text = "def attend(): pass\ndef softmax(): pass\n"
    said = refusal(tmp_path, text, "atend")
    assert said == "mine.py has no atend; did you mean attend?"
    said = refusal(tmp_path, text, "zzz")
    assert said == "mine.py has no zzz; it defines attend, softmax"
    assert refusal(tmp_path, "", "zzz") == "mine.py has no zzz"
    assert "has no attend.inner" in refusal(tmp_path, text, "attend.inner")


def test_what_cannot_be_called_is_refused(tmp_path):
    said = refusal(tmp_path, "attend = 3")
    assert said == ("attend in mine.py is of type int, which cannot be called")


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    path = tmp_path / "mine.py"
    path.write_bytes(b"\xff\xfe def")
    with pytest.raises(CannotVerify, match="could not be imported"):
        load(path, "attend")


# Building modules ----------------------------------------------------------


@pytest.fixture(scope="module")
def nn():
    return pytest.importorskip("torch").nn


def layer_with(nn, signature, sizes):
    """Return a module's class with this signature; it keeps `sizes`."""
    space = {"nn": nn}
    code = (
        "class Layer(nn.Module):\n"
        f"    def __init__(self, {signature}):\n"
        "        super().__init__()\n"
        f"        self.sizes = {sizes}\n"
    )
    exec(code, space)
    return space["Layer"]


@pytest.mark.parametrize(
    ("signature", "sizes"),
    [
        ("embed_dim, num_heads, dropout=0.1", "embed_dim, num_heads"),
        ("dim, num_heads=8, *, bias=False", "dim, num_heads"),
        ("n_heads, d_model", "d_model, n_heads"),
        ("d_model=512, nhead=8", "d_model, nhead"),
        ("h, d_model, dropout", "d_model, h"),
        ("width, parts", "width, parts"),
        ("a, b, *rest", "a, b"),
        ("*args", "args"),
        ("config", "config.n_embd, config.n_head"),
        ("cfg", "cfg['emb_dim'], cfg['n_heads']"),
        (
            "d_in, d_out, context_length, dropout, num_heads, qkv_bias=False",
            "d_out, num_heads",
        ),
        ("dim, head_dim", "dim, dim // head_dim"),
        ("embed_dim, num_heads, kdim=None", "embed_dim, num_heads"),
    ],
)
def test_a_class_gets_width_and_heads_under_its_own_names(nn, signature, sizes):
    module = build_module(layer_with(nn, signature, sizes), 12, 3)
    assert module.sizes == (12, 3)


def test_an_object_and_a_builder_function_are_modules_too(nn):
    ready = nn.MultiheadAttention(12, 3)
    assert build_module(ready, 8, 2) is ready

    def make(embed_dim, num_heads):
        return nn.MultiheadAttention(embed_dim, num_heads)

    assert build_module(make, 12, 3).embed_dim == 12


def test_what_was_tried_is_said(nn):
    needs_more = layer_with(nn, "embed_dim, num_heads, rope", "1, 1")
    with pytest.raises(CannotVerify, match=r"Tried Layer\(12, 3\)\. It raised"):
        build_module(needs_more, 12, 3)
    fails = layer_with(nn, "embed_dim, num_heads", "1 / 0")
    tried = (
        r"Tried Layer\(embed_dim=12, num_heads=3\)\. "
        "It raised ZeroDivisionError: division by zero"
    )
    with pytest.raises(CannotVerify, match=tried):
        build_module(fails, 12, 3)
    asks = layer_with(nn, "config", "config.window_of_the_moon")
    with pytest.raises(CannotVerify, match="no 'window_of_the_moon'"):
        build_module(asks, 12, 3)


def test_what_builds_no_module_is_refused(nn):
    with pytest.raises(
        CannotVerify, match="of type SimpleNamespace, not an nn"
    ):
        build_module(lambda a, b: types.SimpleNamespace(), 12, 3)


def test_files_of_this_package_load_as_part_of_it():
    import attention_lab.masks as masks

    assert load(Path(masks.__file__), "causal") is masks.causal
