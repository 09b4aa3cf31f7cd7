"""Verify attention functions.

`battery` is the entry; `case` makes inputs, `subject` calls the function,
`kinds` lists the checks (`checks`, `properties`, `gradients`), `example`
shrinks a failure and puts it into words, and `diagnosis` names the mistake by
comparing with the models in `wrong_attention`, `wrong_tiles` and
`wrong_gradients`.
"""
