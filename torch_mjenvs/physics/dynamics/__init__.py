"""The dynamics without constraints: MuJoCo's engine_core_smooth.c, engine_passive.c and engine_forward.c.

Module by module:

    kinematics, inertia, velocity     positions, M and its factors, velocities and Coriolis forces
    forces                            passive forces, and the sum of all forces but those of constraints
    springs, fluid, energy            springs and dampers; drag and lift (fluid_frame, fluid_ellipsoid); energies
    wrenches                          forces from outside
    tendons/, actuators/              what pulls, and by how much; `reflected` is what actuators lend to joints
    integrator, implicit              from an acceleration to the next state
    plasticity, history               what else a step changes: rests of springs that yield, samples for delays
    set_const                         constants that MuJoCo derives from a model at qpos0. mj_setConst
"""
