"""Verify attention modules, by properties and by their own weights.

`battery` is the entry; `subject` calls any module, `weights` recognises its
projections, `bench` holds one verification's state, the checks are in
`properties`, `masks`, `training` and `values`, and `diagnosis` names the
mistake by comparing with the models in `wrong_module`.
"""
