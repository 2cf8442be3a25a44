"""Vectors, quaternions and spatial motions as lists of scalars (`spatial`), and rows over dofs that are mostly zero
(`sparse`).
"""
