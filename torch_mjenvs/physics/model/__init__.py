"""The records that all of physics works on: the model's constants, mjData's fields, the state, enums, precision.

model, mesh, hfield     a model's constants, under MuJoCo's names
data                    mjData's fields, and which stage computes each of them
state                   what a step starts from, and what it leaves
enums                   MuJoCo's enums
precision               what rounding lets the solver do
"""
