"""From an `mjModel` to a `Model`: `load` reads it, `refusals` and `numbers` refuse by name what is not there or makes
no sense, `singular` finds where M may be singular, and `size` says beforehand how large a kernel will be.
"""
