"""Any two convex shapes: `hull` is what is asked of a shape, `nearest` and `deepest` are GJK and EPA, `faces` and
`patches` find the flat parts that touch, and `convex` is the collider made of them.
"""
