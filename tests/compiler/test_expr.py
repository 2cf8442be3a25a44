"""The tracer: what folds, what is one node, what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from kernels import record_list

from torch_mjenvs.compiler import scalar
from torch_mjenvs.compiler.active_sets import active_set, compute_each
from torch_mjenvs.compiler.control import compute_any, repeat, when_any, while_any
from torch_mjenvs.compiler.expr import Expr, current, node, tracing
from torch_mjenvs.compiler.program import Buffer, Program, record


@pytest.fixture
def xy():
    """Two traced floats, with the trace open."""
    with tracing("float64"):
        yield node("load", attr=(0, 0), type_="f"), node("load", attr=(0, 1), type_="f")


def shape(x: object) -> object:
    """An expression as nested tuples, to be compared by value."""
    return (x.op, *(shape(a) for a in x.args)) if type(x) is Expr and x.op != "load" else x


def test_structural_zeros(xy):
    x, _ = xy
    for zero in (0.0, 0, -0.0):
        for product in (x * zero, zero * x, zero / x):
            assert type(product) in (float, int) and product == 0
        for same in (x + zero, zero + x, x - zero):
            assert same is x
        assert shape(zero - x) == ("neg", x)
    assert x - x == 0.0


def test_factors_of_one_vanish(xy):
    x, _ = xy
    assert x * 1.0 is x and 1 * x is x and x / 1.0 is x
    assert shape(x * -1.0) == shape(-1.0 * x) == ("neg", x)
    assert shape(x / 4.0) == ("mul", x, 0.25)


def test_negations_move_outwards_or_vanish(xy):
    x, y = xy
    negative = -x
    assert -negative is x
    assert (-x) * (-y) is x * y
    assert shape((-x) * y) == shape(x * (-y)) == ("neg", ("mul", x, y))
    assert shape((-x) * 3.0) == ("mul", x, -3.0)
    assert shape(x + -y) == ("sub", x, y)
    assert shape(-x + y) == ("sub", y, x)
    assert shape(x - -y) == ("add", x, y)
    assert shape(-(x - y)) == ("sub", y, x)
    assert shape(2.0 + -x) == ("sub", 2.0, x)
    assert shape(2.0 - -x) == ("add", x, 2.0)


def test_equal_expressions_are_one_node(xy):
    x, y = xy
    before = len(current().region.nodes)
    assert x * y + 1.0 is 1.0 + y * x
    assert x + y is y + x
    assert (x - y) is not (y - x)
    assert scalar.sqrt(x) is scalar.sqrt(x)
    assert (x < y) is (y > x)
    assert scalar.minimum(x, y) is not scalar.minimum(y, x)  # they differ where one is NaN
    assert len(current().region.nodes) == before + 9


def test_masks_fold(xy):
    x, y = xy
    mask, other = x < y, x < 0.0
    land, lor, lnot, select = scalar.logical_and, scalar.logical_or, scalar.logical_not, scalar.select
    assert land() is True and lor() is False
    assert land(True, mask) is mask and land(mask, mask) is mask and land(mask, False, other) is False
    assert lor(False, mask) is mask and lor(mask, mask) is mask and lor(mask, True) is True
    assert lnot(lnot(mask)) is mask and lnot(True) is False
    assert select(True, x, y) is x and select(False, x, y) is y and select(mask, x, x) is x
    assert select(mask, 2.0, 2.0) == 2.0
    assert select(mask, True, False) is mask and select(mask, False, True) is lnot(mask)
    assert land(mask, other).op == "and" and lor(mask, other).op == "or"


def test_a_choice_of_constants_is_a_float_unless_both_are_whole(xy):
    x, y = xy
    assert scalar.select(x < y, 1.5, 0).type == scalar.select(x < y, 0, 1.5).type == "f"
    assert scalar.select(x < y, 1, 0).type == "i"


def test_integers_have_operations_of_their_own(xy):
    i = node("load", attr=(1, 0), type_="i")
    assert (i + 1).op == (1 + i).op == "iadd"
    assert (i < 1).op == (i > 1).op == "ilt"


def test_powers_become_products_and_roots(xy):
    x, _ = xy
    assert scalar.power(x, 0) == 1.0 and scalar.power(x, 1) is x
    assert shape(scalar.power(x, 2)) == ("mul", x, x)
    assert shape(scalar.power(x, 0.5)) == ("sqrt", x)
    assert shape(scalar.power(x, -1)) == ("div", 1.0, x)


def test_powers_that_differ_from_world_to_world_are_refused(xy):
    x, y = xy
    for power in (lambda: scalar.power(x, y), lambda: scalar.power(2.0, x), lambda: x**y, lambda: 2.0**x):
        with pytest.raises(TypeError, match=r"exp\(p \* log\(x\)\)"):
            power()
    with pytest.raises(TypeError, match="constant p"):
        scalar.power(2.0, torch.ones(3))


@pytest.mark.parametrize("p", [0, 1, 2, 3, 4, 5, 7, 16, 0.5, -1, -3, 1.7, 20.0])
def test_powers_of_numbers(p):
    for x in (0.3, 1.0, 2.5):
        assert scalar.power(x, p) == pytest.approx(x**p, rel=1e-14)
        assert float(scalar.power(torch.tensor([x]), p)) == pytest.approx(x**p, rel=1e-6)


def test_sibling_blocks_share_only_what_is_around_them():
    made = {}

    def body(b):
        x, y = b["x"]
        outside = x * y

        def block(name):
            def inside(carry):
                made[name] = scalar.sqrt(x)
                assert x * y is outside
                assert scalar.sqrt(x) is made[name]
                return [carry[0] + made[name] * outside]

            return inside

        first = when_any(x < 0.0, block("first"), [0.0])
        second = when_any(y < 0.0, block("second"), first)
        assert all(scalar.sqrt(x) is not y for y in made.values())
        return {"y": second}

    record("siblings", [Buffer("x", 2), Buffer("y", 1)], body, "float32")
    assert made["first"] is not made["second"]


def names_of(program: Program) -> list[str]:
    return sorted(e.op for e in program.live)


def test_dead_code_is_left_out():
    def body(x):
        unused = scalar.sqrt(x[0])
        when_any(x[0] < unused, lambda c: [scalar.sin(c[0])], [x[1]])
        kept, dropped = when_any(x[0] < 0.0, lambda c: [c[0] + 1.0, scalar.sqrt(c[1])], [x[0], x[1]])
        _ = dropped
        looped = repeat(3, lambda i, c: {"a": c["a"] + 1.0, "b": scalar.sqrt(c["b"])}, {"a": kept, "b": x[1]})
        return [looped["a"]]

    ops = names_of(record_list(body, 2, 1, "float32"))
    assert "sqrt" not in ops and "mul" not in ops
    assert ops == ["add", "add", "load", "lt", "phi", "repeat", "result", "result", "when"]


def test_a_loop_keeps_what_only_its_condition_needs():
    def body(x):
        out = while_any(
            lambda c: c["n"] > 0.0, lambda c: {"n": c["n"] - 1.0, "a": c["a"] * 2.0}, {"n": x[0], "a": 1.0}, 9
        )
        return [out["a"]]

    ops = names_of(record_list(body, 1, 1, "float32"))
    assert ops.count("phi") == 2 and "sub" in ops


def test_a_loop_in_a_block_is_for_the_worlds_of_the_block():
    """The others may hold garbage, for which it would go on to its limit."""

    def body(x):
        mask = x[0] > 0.0
        turn = lambda c: [c[0] - 1.0]  # noqa: E731
        return when_any(mask, lambda c: while_any(lambda e: e[0] > 5.0, turn, c, 9), [x[1]])

    program = record_list(body, 2, 1, "float32")
    (loop,) = (e for e in program.live if e.op == "while")
    active = loop.attr.active
    assert shape(active)[0] == "and" and shape(active.args[0])[0] == "lt"
    assert active.args[0] in program.trace.top.nodes


def test_carries_keep_their_shape():
    seen = []

    def body(x):
        carry = {"a": [x[0], (x[1],)], "b": 1.0}
        for out in (
            when_any(x[0] < 0.0, lambda c: c, carry),
            while_any(lambda c: c["b"] > 0.0, lambda c: c, carry, 2),
            repeat(2, lambda i, c: c, carry),
            compute_any(x[0] < 0.0, lambda: carry),
        ):
            seen.append(out)
        return [seen[-1]["b"]]

    record_list(body, 2, 1, "float32")
    for out in seen:
        assert set(out) == {"a", "b"} and type(out["a"]) is list and type(out["a"][1]) is tuple


def test_what_a_block_leaves_alone_is_no_result():
    def body(x):
        a, b = when_any(x[0] < 0.0, lambda c: [c[0], c[1] + 1.0], [x[0], 2.0])
        assert a is x[0] and b is not x[1]
        return [b]

    assert names_of(record_list(body, 2, 1, "float32")).count("result") == 1


# what is refused


FORMS = {
    "when_any": lambda x, body, carry: when_any(x[0] < 0.0, body, carry),
    "while": lambda x, body, carry: while_any(lambda c: x[0] < 0.0, body, carry, 3),
    "repeat": lambda x, body, carry: repeat(3, lambda i, c: body(c), carry),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_body_must_return_the_shape_and_types_of_its_carry(form):
    run = FORMS[form]
    with pytest.raises(ValueError, match=f"{form}.*2 values for a carry of 1"):
        record_list(lambda x: run(x, lambda c: [c[0], c[0]], [x[0]]), 1, 1, "float32")
    with pytest.raises(TypeError, match=f"{form}.*value 1.*'f'.*'b'"):
        record_list(lambda x: run(x, lambda c: [c[0], c[0] < 0.0], [x[0], 1.0])[:1], 1, 1, "float32")
    with pytest.raises(TypeError, match="not a scalar"):
        record_list(lambda x: run(x, lambda c: [None], [x[0]]), 1, 1, "float32")


def test_a_value_does_not_leave_its_block():
    """Else its store would be part of a block that may be skipped."""
    for form in ("when", "while", "repeat"):
        leaked = []

        def leak(c, leaked=leaked):
            leaked.append(scalar.sqrt(c[0]) if type(c[0]) is Expr else c[0])
            return [leaked[0]]

        def body(x, form=form, leaked=leaked, leak=leak):
            if form == "when":
                when_any(x[0] < 0.0, leak, [x[0]])
            elif form == "while":
                while_any(lambda c: c[0] > 0.0, leak, [x[0]], 3)
            else:
                repeat(3, lambda i, c: leak(c), [x[0]])
            return [leaked[0]]

        with pytest.raises(ValueError, match="outside the block or loop"):
            record_list(body, 1, 1, "float32")
        leaked.clear()
        with pytest.raises(ValueError, match="outside the block or loop"):
            record_list(lambda x, body=body: [body(x)[0] + 1.0], 1, 1, "float32")


def test_a_traced_value_has_no_truth_and_no_number(xy):
    x, y = xy
    with pytest.raises(TypeError, match="truth"):
        bool(x < y)
    with pytest.raises(TypeError, match="truth"):
        _ = 0.0 < x < 1.0
    with pytest.raises(TypeError, match="number"):
        float(x)
    with pytest.raises(TypeError, match="number"):
        math.sin(x)
    with pytest.raises(TypeError):
        x**3


@pytest.mark.parametrize(
    "calculate",
    [
        lambda x, mask: x + mask, lambda x, mask: 2.0 * mask, lambda x, mask: mask - 0.5, lambda x, mask: x / mask,
        lambda x, mask: -mask, lambda x, mask: mask < 0.5, lambda x, mask: scalar.maximum(mask, 0.0),
    ],
)  # fmt: skip
def test_masks_are_not_calculated_with(calculate):
    with pytest.raises(TypeError, match=r"a mask is not a number: select\(mask, 1.0, 0.0\)"):
        record_list(lambda x: [calculate(x[0], x[0] > 0.0)], 1, 1, "float32")


def test_tensors_do_not_enter_a_kernel():
    with pytest.raises(TypeError, match=r"a Tensor is not part of a kernel: take Python's numbers, as float\(x\)"):
        record_list(lambda x: [torch.tensor(2.0) * x[0]], 1, 1, "float32")


def test_a_value_is_not_asked_whether_it_is_itself():
    with pytest.raises(TypeError, match=r"of NaN ~\(absolute\(x\) < math.inf\) holds"):
        record_list(lambda x: [scalar.select(x[0] != x[0], 1.0, 0.0)], 1, 1, "float32")


def test_stores_fit_their_buffers():
    buffers = [Buffer("x", 2), Buffer("flag", 1, "b")]
    for values, error in (([1.0], TypeError), ([True, True], ValueError), ([None], TypeError), ([3], TypeError)):
        with pytest.raises(error, match=r"flag|not a scalar"):
            record("bad", buffers, lambda b, values=values: {"flag": values}, "float32")
    with pytest.raises(KeyError):
        record("bad", buffers, lambda b: {"nothing": [1.0]}, "float32")


def test_operations_obey_the_table():
    with pytest.raises(TypeError, match="and takes 'bb'"):
        record_list(lambda x: [scalar.select(node("and", x[0] < 0.0, x[0]), 1.0, 0.0)], 1, 1, "float32")
    with pytest.raises(TypeError, match=r"a mask is a comparison, such as x > 0\.5"):
        record_list(lambda x: [scalar.select(scalar.logical_and(x[0] < 0.0, x[0]), 1.0, 0.0)], 1, 1, "float32")
    with pytest.raises(TypeError, match="sqrt takes 'f'"):
        record_list(lambda x: [node("sqrt", x[0], x[0])], 1, 1, "float32")
    with pytest.raises(TypeError, match="lookup needs a Table, got 3"):
        record_list(lambda x: repeat(2, lambda i, c: [node("lookup", i, attr=3, type_="f")], x), 1, 1, "float32")
    with pytest.raises(TypeError, match="each needs a 'f', got <lt:b>"):
        masks = lambda x: compute_each(active_set([x[0] < 0.0]), lambda i: [x[0] < 1.0])  # noqa: E731
        record_list(lambda x: [masks(x)[0, 0]], 1, 1, "float32")


def test_traces_do_not_nest_and_do_not_linger():
    with pytest.raises(RuntimeError, match="traced already"):
        record_list(lambda x: record_list(lambda y: y, 1, 1, "float32"), 1, 1, "float32")
    with pytest.raises(RuntimeError, match="no kernel"):
        current()
    with pytest.raises(ValueError, match="float16"):
        record_list(lambda x: x, 1, 1, "float16")
    assert repeat(2, lambda i, c: c + i, 0) == 1
