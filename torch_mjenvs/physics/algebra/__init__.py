"""Vectors, quaternions and spatial motions as lists of scalars (`spatial`), and sparse rows over dofs (`sparse`)."""
