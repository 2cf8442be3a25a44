"""Tendons: their lengths and Jacobians (`tendon`), their way round geoms (`wrapping`), forces of their armature
(`bias`).
"""
