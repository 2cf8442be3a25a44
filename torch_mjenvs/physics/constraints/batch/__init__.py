"""Contacts of many pairs of one kind, done by loops over them.

`pair_batch` says which pairs, `pair_tables` has what tells them apart, in `records`, whose columns have names;
`pair_numbers` has what their contacts are made of, `varied_numbers` that which varies from world to world;
`contact_groups`, `world_batches` and `contact_pool` are the constraints: of batches by rows of the Jacobian, of those
that stand on the world by stiffnesses of bodies, and of very many pairs in slots.
"""
