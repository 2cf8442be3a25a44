"""Contacts of many pairs of one kind, done by loops over them.

From the pairs to the constraints:

    pair_batch                             which pairs form a batch, and the batch's constants
    pair_tables, records                   a batch's poses and sizes in tables, and the search for pairs that touch
    pair_numbers                           what its contacts are made of: friction, stiffness and so on
    varied_numbers, varied_rows            the same where they vary from world to world
    near_groups, near_pairs, near_tables   pairs with many geoms that stand still: each world looks up those nearby
    cells                                  which of these are near, by place on the ground
    contact_groups                         constraint: contacts by rows of the Jacobian
    world_batches                          constraint: contacts with the world, as stiffnesses of bodies
    contact_pool, pool_blocks              constraint: contacts of very many pairs, in slots
    in_loop                                what all three do besides: wrenches, visits of sensors, masks
"""
