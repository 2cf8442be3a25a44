"""Tendons: their lengths and Jacobians (`tendon`), paths round geoms (`wrapping`), forces of armature (`bias`)."""
