"""From constraints to the acceleration that they leave: Newton's method (`newton`), where it starts (`warmstart`), and
the sweeps after it that let no friction creep (`noslip`).
"""
