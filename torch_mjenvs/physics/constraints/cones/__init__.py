"""The cost of a contact, by its friction cone.

`pyramid` has pyramids of friction, `spring_pyramid` those whose rows are softened, `elliptic` elliptic cones.
"""
