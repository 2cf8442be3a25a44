"""The solver: Newton's method (`newton`), where it starts (`warmstart`), and noslip sweeps after it (`noslip`)."""
