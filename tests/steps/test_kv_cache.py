import pytest
import torch

from attention_lab.axes import ShapeMismatch
from attention_lab.error_bound import rounding
from attention_lab.steps.kv_cache import GroupedQueryAttention, KVCache
from attention_lab.verify import check_same_as
from attention_lab.verify.checks import WrongValues


@pytest.fixture
def module():
    torch.manual_seed(0)
    return GroupedQueryAttention(12, num_heads=6, key_heads=2).double()


@pytest.fixture
def x_BLE():
    torch.manual_seed(1)
    return torch.randn(3, 7, 12, dtype=torch.float64)


def empty_cache(capacity=7, **changed):
    sizes = {"B": 3, "H_kv": 2, "D": 2, "capacity": capacity, **changed}
    return KVCache(**sizes, dtype=torch.float64)


def pieces(module, x_BLE, sizes):
    """Decode in pieces of these sizes, with one cache."""
    cache = empty_cache()
    with torch.no_grad():
        parts = [module(part, cache) for part in x_BLE.split(sizes, dim=1)]
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("sizes", [[1] * 7, [3, 1, 3], [7], [1, 6], [6, 1]])
def test_tokens_one_by_one_give_what_all_at_once_gives(module, x_BLE, sizes):
    whole = module(x_BLE)
    check_same_as(pieces(module, x_BLE, sizes), whole, rounding(whole))


def test_it_is_multi_head_attention_with_repeated_key_rows(module, x_BLE):
    # Each key head's rows, once for every query head that reads it.
    torch_module = torch.nn.MultiheadAttention(12, 6, batch_first=True).double()
    rows = [module.q_proj.weight, module.q_proj.bias]
    for p in (module.k_proj, module.v_proj):
        rows[0] = torch.cat([rows[0], each_three_times(p.weight)])
        rows[1] = torch.cat([rows[1], each_three_times(p.bias)])
    with torch.no_grad():
        torch_module.in_proj_weight.copy_(rows[0])
        torch_module.in_proj_bias.copy_(rows[1])
        torch_module.out_proj.weight.copy_(module.out_proj.weight)
        torch_module.out_proj.bias.copy_(module.out_proj.bias)
    forbid = torch.ones(7, 7).triu(1).bool()
    expected, _ = torch_module(*[x_BLE] * 3, attn_mask=forbid)
    check_same_as(module(x_BLE), expected, rounding(expected))


def each_three_times(rows):
    """Repeat blocks of D = 2 rows, one block per key head."""
    return rows.unflatten(0, (2, 2)).repeat_interleave(3, dim=0).flatten(0, 1)


def test_a_later_token_changes_no_earlier_output(module, x_BLE):
    changed = x_BLE.clone()
    changed[:, 4:] += 1
    before, after = module(x_BLE), module(changed)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])


@pytest.mark.parametrize("forget", ["first_row", "values", "order"])
def test_a_mistake_while_decoding_shows(module, x_BLE, forget, monkeypatch):
    append = KVCache.append

    def wrong(self, key, value):
        key, value = append(self, key, value)
        if forget == "first_row":
            self.length = 0  # the next token writes over this one
        if forget == "values":
            value = value.roll(1, dims=2)
        if forget == "order":
            key = key.flip(2)
        return key, value

    whole = module(x_BLE)
    monkeypatch.setattr(KVCache, "append", wrong)
    with pytest.raises(WrongValues):
        check_same_as(pieces(module, x_BLE, [1] * 7), whole, rounding(whole))


def test_a_cache_hands_out_views_of_memory_reserved_once():
    cache = empty_cache()
    new = torch.ones(3, 2, 4, 2, dtype=torch.float64)
    key, value = cache.append(new, 2 * new)
    assert key.data_ptr() == cache.k_BHSD.data_ptr()
    assert torch.equal(key, new)
    assert torch.equal(value, 2 * new)
    assert cache.k_BHSD[:, :, 4:].isnan().all()
    assert cache.length == 4


def test_bytes_are_counted_by_hand():
    # 2 arrays of 3·2·7·2 = 84 numbers of 8 bytes.
    assert empty_cache().nbytes == 2 * 84 * 8
    wide = KVCache(1, 8, 128, 4096, dtype=torch.float16, device="meta")
    assert wide.nbytes == 2 * 8 * 128 * 4096 * 2


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ((3, 2, 1, 2), (3, 2, 2, 2), "value: axis L has size 2, but key has L"),
        ((2, 2, 1, 2), (3, 2, 1, 2), "key: axis B has size 2, but the cache"),
        ((3, 6, 1, 2), (3, 2, 1, 2), "key: axis H_kv has size 6, but the cac"),
        ((3, 2, 1, 2), (3, 2, 1, 3), "value: axis D has size 3, but the cache"),
        ((3, 2, 2), (3, 2, 2, 2), "key has 3 axes"),
    ],
)
def test_other_sizes_are_refused(key, value, says):
    key, value = (torch.zeros(s, dtype=torch.float64) for s in (key, value))
    with pytest.raises(ShapeMismatch, match=says):
        empty_cache().append(key, value)


def test_a_full_cache_says_so_and_stays_as_it_was():
    cache = empty_cache(capacity=2)
    new = torch.zeros(3, 2, 2, 2, dtype=torch.float64)
    cache.append(new, new)
    with pytest.raises(ValueError, match=r"1 more .* make 3, .* capacity of 2"):
        cache.append(new[:, :, :1], new[:, :, :1])
    assert cache.length == 2


def test_other_kinds_are_refused():
    new = torch.zeros(3, 2, 1, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"key has dtype torch.float32, but"):
        empty_cache().append(new.float(), new)
    with pytest.raises(ValueError, match=r"value requires a gradient"):
        empty_cache().append(new, new.clone().requires_grad_())
    with pytest.raises(ValueError, match="key must be a torch tensor"):
        empty_cache().append(new.numpy(), new)
    with pytest.raises(ValueError, match="capacity must be a whole number"):
        empty_cache(capacity=0)


@pytest.mark.parametrize("key_heads", [0, 4, 7, -1])
def test_key_heads_must_divide_the_heads(key_heads):
    with pytest.raises(ShapeMismatch, match="does not divide num_heads H = 6"):
        GroupedQueryAttention(12, 6, key_heads)


def test_another_width_is_refused(module):
    with pytest.raises(ShapeMismatch, match="axis E has size 11, but the mod"):
        module(torch.zeros(1, 2, 11, dtype=torch.float64))
