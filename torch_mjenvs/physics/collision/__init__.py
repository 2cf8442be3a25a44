"""Collision: finds which geoms touch, and where.

From the stage to its parts:

    candidates        the stage: from all pairs to contacts
    shapes            the table of what can touch what, and by which collider
    colliders         what every collider is given and gives back, and the simplest ones
    primitive/        planes, spheres, capsules, cylinders and boxes
    convex/           any two convex shapes
    hfield/           geoms on height fields
    boxes_around      tells early that two geoms are apart
    contact_param     friction and the like of a pair
    solids            tables of the vertices and faces of meshes and boxes
    directions        which vertices of a mesh may be the furthest in a direction
    distance          how far apart geoms are, for sensors
"""
