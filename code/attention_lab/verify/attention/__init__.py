"""Verify attention functions.

`battery` is the entry. `case` makes inputs; `signature` finds out how a
function wants to be called, and `subject` calls it. `kinds` lists the checks
(`checks`, `properties`, `gradients`), with `comparison`; `example` shrinks a
failure and puts it into words. `diagnosis` names the mistake: `value_names` by
comparing with the models in `wrong_attention` (with `parts` and `wrong_masks`),
`wrong_tiles` and `wrong_gradients`, `failure_names` where there are no numbers.
"""
