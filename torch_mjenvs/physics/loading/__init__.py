"""Loading an `mjModel` into a `Model`: reading it, refusing what is not implemented, estimating the kernel's size."""
