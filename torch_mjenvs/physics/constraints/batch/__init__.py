"""Contacts of many pairs of one kind, done by loops over them.

`pair_batch` says which pairs, `pair_tables` has what tells them apart, in `records`, whose columns have names;
`contact_groups` is the constraint.
"""
