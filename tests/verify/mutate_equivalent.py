"""Why some mutants do the same as their source, wherever the contract asks.

Reason -> labels of `mutate.mutants`. Each survives every call in `situations`.
"""

EQUIVALENT = {
    "query, key and value have the same dtype, batch and length": (
        "whole, line 5:12: query → key",
        "whole, line 5:12: query → value",
        "whole, line 10:46: k → v",
        "whole, line 11:32: q → k",
        "whole, line 13:32: q → k",
        "grouped_einsum, line 8:31: query → key",
        "grouped_einsum, line 8:31: query → value",
        "grouped_einsum, line 26:40: query → key",
        "grouped_einsum, line 26:40: query → value",
        "online, line 8:31: query → key",
        "online, line 8:31: query → value",
        "online, line 37:18: query → key",
        "online, line 37:18: query → value",
        "online, line 6:19: key → value",
        "online, line 7:17: key → value",
        "in_numpy, line 24:40: query → key",
        "in_numpy, line 24:40: query → value",
        "in_numpy, line 7:30: k → v",
        "in_numpy, line 10:28: q → k",
        "folded, line 7:31: query → key",
        "folded, line 7:31: query → value",
        "folded, line 25:58: query → key",
        "folded, line 25:58: query → value",
        "folded, line 6:13: key → value",
        "folded, line 8:36: key → value",
        "own_backward, line 28:31: query → key",
        "own_backward, line 28:31: query → value",
        "own_backward, line 44:18: query → key",
        "own_backward, line 44:18: query → value",
        "own_backward, line 26:27: key → value",
        "own_backward, line 27:30: key → value",
        "own_backward, line 42:22: query → key",
    ),
    "a row that sees nothing is overwritten with 0 later": (
        "whole, line 25:58: 0.0 → 1.0",
        "grouped_einsum, line 22:42: 0.0 → 1.0",
        "online, line 30:58: 0.0 → 1.0",
        "in_numpy, line 20:43: 0.0 → 1.0",
        "folded, line 23:38: 0.0 → 1.0",
        "own_backward, line 10:36: scores.masked_fill(dead, 0.0) → scores",
        "own_backward, line 10:61: 0.0 → 1.0",
    ),
    "rows stay where they are in memory; only axis names change": (
        "grouped_einsum, line 9:8: query.to(work).reshape(B, H_kv, H // H_kv, L, D) → query.to(work).reshape(B, H_kv, L, H // H_kv, D)",  # noqa: E501
        "grouped_einsum, line 24:14: weights.reshape(B, H_kv, H // H_kv, L, S) → weights.reshape(B, H_kv, L, H // H_kv, S)",  # noqa: E501
    ),
    "a floating mask has the dtype of the query": (
        "grouped_einsum, line 19:30: attn_mask.to(work) → attn_mask",
        "folded, line 16:22: attn_mask.to(work) → attn_mask",
        "own_backward, line 36:26: attn_mask.to(work) → attn_mask",
    ),
    "0 and minus infinity are the same in every floating dtype": (
        "online, line 12:14: torch.full((B, H, L, 1), -math.inf, dtype=work) → torch.full((B, H, L, 1), -math.inf)",  # noqa: E501
        "online, line 13:14: torch.zeros(B, H, L, 1, dtype=work) → torch.zeros(B, H, L, 1)",  # noqa: E501
        "online, line 14:10: torch.zeros(B, H, L, D_v, dtype=work) → torch.zeros(B, H, L, D_v)",  # noqa: E501
        "folded, line 18:22: torch.full((L, S), -math.inf, dtype=work) → torch.full((L, S), -math.inf)",  # noqa: E501
        "own_backward, line 29:11: torch.zeros(L, S, dtype=work) → torch.zeros(L, S)",  # noqa: E501
        "own_backward, line 31:15: torch.full((L, S), -math.inf, dtype=work) → torch.full((L, S), -math.inf)",  # noqa: E501
    ),
    "the first rescale is exp(−∞) = 0 and clears the sum": (
        "online, line 13:14: torch.zeros(B, H, L, 1, dtype=work) → torch.ones(B, H, L, 1, dtype=work)",  # noqa: E501
    ),
    "the result does not depend on the tile": (
        "online, line 6:49: 16 → 17",
        "online, line 6:49: 16 → 15",
    ),
    "a row that sees nothing has an accumulator of 0, whatever divides it": (
        "online, line 36:52: 1.0 → 2.0",
        "online, line 36:52: 1.0 → -1.0",
        "online, line 36:36: row_sum → acc",
        "in_numpy, line 23:49: 1.0 → 2.0",
        "in_numpy, line 23:49: 1.0 → -1.0",
    ),
    "the same number added to every score of a row changes no weight": (
        "folded, line 12:11: torch.zeros(B, H, L, S, dtype=work) → torch.ones(B, H, L, S, dtype=work)",  # noqa: E501
        "own_backward, line 29:11: torch.zeros(L, S, dtype=work) → torch.ones(L, S, dtype=work)",  # noqa: E501
    ),
    "the bias is 0 unless is_causal comes with a mask, which may be refused": (
        "own_backward, line 36:19: bias + attn_mask.to(work) → attn_mask.to(work)",  # noqa: E501
    ),
}

#: Label -> reason.
REASONS = {
    label: reason for reason, labels in EQUIVALENT.items() for label in labels
}
