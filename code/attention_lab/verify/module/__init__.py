"""Verify attention modules, by properties and by their own weights.

`battery` is the entry. `signature` says which argument is which, `subject`
calls any module, `layers` and `weights` recognise its projections, `bench`
holds one verification's state. The checks are in `outputs`, `properties`,
`masks`, `padding`, `lengths`, `training`, `checkpoint` and `values`, with
`positions` for modules that have positions of their own. `diagnosis` names the
mistake by comparing with the models in `wrong_module`.
"""
