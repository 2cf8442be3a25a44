"""The compiler: records ordinary Python over scalars as a graph, and makes kernels of it for CPUs and NVIDIA's GPUs.

From what a program says to a launch:

    scalar, control, arrays, random        what programs are written in
    expr, region_ops, program, show        the recorded graph, and how to read it
    derivatives, adjoints, implicit        derivatives of a graph, forward and in reverse
    lower, schedule, sink_loads, fuse      passes over it
    llvm/, cpu, cuda                       LLVM IR, object code, PTX
    build, cache, source                   finding or making a kernel
    launch, functions                      running it over torch tensors
    matrices/, tiles/                      kernels over matrices; large matrices within a kernel
"""
