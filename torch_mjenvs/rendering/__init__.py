"""Pictures of worlds by rays, without OpenGL: `camera` says from where, `scene` what is drawn, `picture` draws it.

`simulation` has the `Simulation` that users see: the physics with pictures.

Two kernels make a picture. In the first a lane is a world: it finds where everything is as the camera sees it. In the
second a lane is a pixel. A vector is neighbouring pixels of one picture, and skips what none of them can show.
"""
