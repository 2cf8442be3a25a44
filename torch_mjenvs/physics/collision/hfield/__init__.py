"""Contacts of geoms on height fields.

`field_colliders` goes over the cells under a geom, as prisms (`prisms`); `field_corners` and `enclosing` find the depth
where MuJoCo's own search ends early.
"""
