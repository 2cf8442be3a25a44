"""Actuators: how long and fast they are, what they pull at, and by how much.

`actuation` has the stages: lengths, velocities and forces. `activation` is the state that some actuators have.
Tables have all that is known of each kind: `kinds` of dynamics, gains and biases, and `transmissions` of what they pull
at; `muscle` and `site_transmission` are parts of these. `driven` lists the actuators of a joint or a tendon.
"""
