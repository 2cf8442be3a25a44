"""Loading of an `mjModel` into a `Model`: reading it, refusing what cannot be simulated, estimating its kernel's size.
"""
