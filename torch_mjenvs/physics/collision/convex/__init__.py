"""Contacts of any two convex shapes by their furthest points.

`hull` is what is asked of a shape, `nearest` and `deepest` are GJK and EPA, `faces` and `patches` find the flat parts
that touch, and `convex` has the colliders made of them. `polish` makes contacts of round shapes exact; `closed_form`
is for derivatives.
"""
