"""Networks of dense layers, compiled for the CPU: what they are made of, and the steps that run and train them.

Frames are the lanes of vectors here, as worlds are in physics. The compiler has the products; all that is done number
by number (activations, losses, Adam) is written in scalars, and traced.
"""
