"""Pairs of shapes that are worked out, each by itself: planes, spheres, capsules, cylinders and boxes."""
