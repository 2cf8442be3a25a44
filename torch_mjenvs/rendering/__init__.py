"""Pictures of worlds, by rays: `camera` says from where, `scene` what is drawn, `picture` runs it; no OpenGL.

`simulation` has the `Simulation` that users see: the physics with pictures.

Two kernels make a picture. In the first a lane is a world: it finds where everything is as the camera sees it. In the
second a lane is a pixel: neighbouring pixels of one picture, a vector of them, meet only what can be in one of them.
"""
