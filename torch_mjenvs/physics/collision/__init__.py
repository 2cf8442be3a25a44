"""Which geoms touch, and where.

`driver` is the stage: from all pairs to contacts. `shapes` is the table of what can touch what, and by which collider;
`colliders` what every collider is given and gives back. Then, by shapes:

    plane_colliders, ball_colliders            planes, spheres and capsules
    capsule_box, capsule_cylinder, box_box     worked out
    convex                                     any two convex shapes: hull, nearest, deepest (GJK and EPA), faces and
                                               patches of flat parts; mesh and solids for vertices
    field_colliders                            height fields: hfield, prisms, field_corners, enclosing

`boxes_around` tells early that two geoms are apart. `contact_param`: friction and the like of a pair. `ray`: what
rangefinders see.
"""
