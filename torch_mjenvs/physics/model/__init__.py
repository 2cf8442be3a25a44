"""The records that all of physics works on: the model's constants, mjData's fields, the state, enums, precision.

Module by module:

    model, mesh, hfield     a model's constants, under MuJoCo's names
    data                    mjData's fields, and which stage computes each of them
    state                   what a step starts from, and what it leaves
    named                   bodies, joints and so on by name
    enums                   MuJoCo's enums
    precision               what rounding lets the solver do
"""
