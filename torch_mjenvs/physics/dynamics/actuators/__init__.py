"""Actuators: what they pull at and by how much.

`actuation` is the stage: lengths, velocities and forces. `activation`: what some of them remember. `muscle`,
`site_transmission`: kinds of them.
"""
