"""Tendons: `tendon` is the stage, their lengths and Jacobians; `wrapping` leads them round spheres and cylinders;
`bias` is what their armature adds to the forces of motion.
"""
