"""Colliders worked out for one pair of shapes each: planes, spheres, capsules, cylinders and boxes."""
