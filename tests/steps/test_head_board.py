"""The runs of the head board, held against PyTorch and the chapter's module."""

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attention_lab.axes import ShapeMismatch
from attention_lab.error_bound import rounding
from attention_lab.steps import head_board as step
from attention_lab.steps.multi_head import merge_heads, split_heads


@pytest.fixture(scope="module")
def head_board():
    return step.record_head_board()


def close(one, other):
    one, other = one.detach(), other.detach()
    np.testing.assert_allclose(one, other, rtol=0, atol=rounding(other))


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_both_ways_are_those_of_the_chapters_module(heads):
    module, x_BLE = step.board_inputs(heads)
    merged = merge_heads(step.heads_at_once(module, x_BLE, heads))
    close(module.out_proj(merged), module(x_BLE, x_BLE, x_BLE))
    looped = module.out_proj(step.heads_in_a_loop(module, x_BLE, heads))
    close(looped, module.loop_over_heads(x_BLE, x_BLE, x_BLE))


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 2), (8, 2), (8, 1)])
def test_shared_key_heads_are_those_of_pytorch(heads, key_heads):
    module, x_BLE = step.board_inputs(heads)
    rows = key_heads * (step.E // heads)
    k, v = (
        split_heads(p(x_BLE)[..., :rows], key_heads)
        for p in (module.k_proj, module.v_proj)
    )
    q = split_heads(module.q_proj(x_BLE), heads)
    expected = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    close(step.heads_at_once(module, x_BLE, key_heads), expected)
    looped = step.heads_in_a_loop(module, x_BLE, key_heads)
    close(looped, merge_heads(expected))


def test_the_wrong_merge_keeps_the_shape_and_mixes_the_tokens():
    x_BHLD = torch.arange(30.0).reshape(1, 3, 5, 2)
    wrong = step.merge_without_permute(x_BHLD)
    assert wrong.shape == merge_heads(x_BHLD).shape == (1, 5, 6)
    # Memory order, so token 0 holds head 0 of the tokens 0, 1 and 2.
    assert wrong[0, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_head_without_its_rows_takes_the_mean_of_its_values():
    module, x_BLE = step.board_inputs(4)
    heads_BHLD = step.heads_at_once(module, x_BLE, 4, off=2)
    mean = split_heads(module.v_proj(x_BLE), 4)[:, 2].mean(dim=1)
    close(heads_BHLD[:, 2], mean[:, None].expand(-1, step.L, -1))


def test_all_numbers_of_heads_have_the_same_weights():
    one, *others = (step.board_inputs(heads) for heads in (1, 2, 4, 8))
    for module, x_BLE in others:
        assert (x_BLE == one[1]).all()
        for ours, first in zip(
            module.parameters(), one[0].parameters(), strict=True
        ):
            assert (ours == first).all()


def test_counts_are_those_of_the_formulas(head_board):
    E, L = step.E, step.L
    for run in head_board["runs"]:
        H, shared = run["H"], run["G"] * run["D"]
        assert run["parameters"] == 2 * (E * E + E) + 2 * (shared * E + shared)
        # q and the last projection; k and v; scores and their mixing.
        products = 2 * L * E * E + 2 * L * E * shared + 2 * L * L * E
        assert run["flops"] == run["loop_flops"] == 2 * products
        assert run["scores"] == H * L * L


def test_rows_and_columns_of_a_head_are_counted_by_hand(head_board):
    shared = next(r for r in head_board["runs"] if (r["H"], r["G"]) == (4, 2))
    assert shared["rows_q"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert shared["rows_kv"] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert shared["heads"][:8] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert shared["tokens"][8:16] == [1] * 8
    # Without the permute head 0 fills five pairs before head 1 begins.
    assert shared["wrong_heads"][:12] == [0] * 10 + [1] * 2
    assert shared["wrong_tokens"][:12] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 0, 0]


def test_what_is_recorded_as_made_by_a_head_is_what_changes(head_board):
    for run in head_board["runs"]:
        for prefix in ("", "wrong_"):
            for head, off in enumerate(run["off"]):
                changed = [
                    one != other
                    for one, other in zip(
                        run[f"{prefix}out"], off[f"{prefix}out"], strict=True
                    )
                ]
                made = [h == head for h in run[f"{prefix}heads"]]
                assert changed == made
                assert off["outside"] == 0 < off["inside"]


def test_errors_are_those_of_the_runs(head_board):
    for run in head_board["runs"]:
        assert run["error"] <= run["bound"]
        assert run["loop_error"] <= run["loop_bound"]
        assert run["whole_error"] == 0
        assert (run["wrong_error"] > run["bound"]) == (run["H"] > 1)


def test_a_loop_that_reads_other_rows_would_be_seen(monkeypatch):
    project = step._one_head

    def one_row_on(linear, x_BLE, head, D):
        linear.weight.data = linear.weight.roll(1, 0)
        return project(linear, x_BLE, head, D)

    monkeypatch.setattr(step, "_one_head", one_row_on)
    (run,) = step.record_head_board(((4, 4),))["runs"]
    assert run["loop_error"] > run["loop_bound"]
    assert run["whole_error"] > 0


@pytest.mark.parametrize(("heads", "key_heads"), [(3, 3), (3, 1), (2, 2)])
def test_another_width_is_that_of_pytorch(heads, key_heads):
    module, x_BLE = step.board_inputs(heads, E=6)
    rows = key_heads * (6 // heads)
    q = split_heads(module.q_proj(x_BLE), heads)
    k, v = (
        split_heads(p(x_BLE)[..., :rows], key_heads)
        for p in (module.k_proj, module.v_proj)
    )
    expected = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    close(step.heads_at_once(module, x_BLE, key_heads), expected)
    data = step.record_head_board(((heads, key_heads),), E=6)
    (run,) = data["runs"]
    assert (data["E"], run["D"], len(run["out"])) == (6, 6 // heads, 30)
    rounded = merge_heads(expected).ravel().tolist()
    np.testing.assert_allclose(run["out"], rounded, rtol=0, atol=0.51e-4)
    assert run["error"] <= run["bound"]
    for head, off in enumerate(run["off"]):
        changed = {
            place % 6
            for place, (one, other) in enumerate(
                zip(run["out"], off["out"], strict=True)
            )
            if one != other
        }
        assert changed <= set(run["rows_q"][head])


def test_the_same_seed_gives_the_same_recording():
    one, other = (step.record_head_board(((2, 1),)) for _ in "ab")
    assert one == other
    assert one["runs"] != step.record_head_board(((2, 1),), seed=1)["runs"]


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="settings is empty"):
        step.record_head_board(())
    with pytest.raises(ShapeMismatch, match="size 8, which num_heads H = 3"):
        step.record_head_board(((3, 3),))
    with pytest.raises(ShapeMismatch, match=r"key_heads.* 3 does not divide"):
        step.record_head_board(((4, 3),))
    with pytest.raises(ShapeMismatch, match="size 6, which num_heads H = 4"):
        step.record_head_board(((4, 4),), E=6)
    with pytest.raises(ShapeMismatch, match="whole number of at least 1"):
        step.record_head_board(((1, 1),), E=0)
