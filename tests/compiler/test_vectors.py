"""Vectors and quaternions of tasks against MuJoCo's own functions and SciPy's rotations."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from graph_eval import run_compiled, trace
from scipy.spatial.transform import Rotation, Slerp

from torch_mjenvs import vectors
from torch_mjenvs.vectors import (
    difference,
    from_axis_angle,
    from_euler,
    inverse,
    multiply,
    normalize,
    rotate,
    rotate_inverse,
    slerp,
    to_euler,
    wrap_to_pi,
    yaw,
)

pytestmark = pytest.mark.usefixtures("no_default_device")

RNG = np.random.default_rng(0)
QUATS = [q / np.linalg.norm(q) for q in RNG.normal(size=(30, 4))] + [np.array([1.0, 0, 0, 0]), np.array([0, 0, 1.0, 0])]


def of_mujoco(function: str, size: int, *args: object) -> list[float]:
    out = np.zeros(size)
    getattr(mujoco, function)(out, *args)
    return out.tolist()


def as_scipy(q: list) -> Rotation:
    return Rotation.from_quat([*q[1:], q[0]])


def test_quaternions_are_mujocos() -> None:
    for p, q in zip(QUATS, QUATS[1:] + QUATS[:1], strict=True):
        v, a = RNG.normal(size=3), RNG.uniform(-7, 7)
        axis = v / np.linalg.norm(v)
        near = dict(rtol=1e-14, atol=1e-15)
        np.testing.assert_allclose(multiply(p.tolist(), q.tolist()), of_mujoco("mju_mulQuat", 4, p, q), **near)
        np.testing.assert_allclose(inverse(q.tolist()), of_mujoco("mju_negQuat", 4, q), **near)
        np.testing.assert_allclose(rotate(q.tolist(), v.tolist()), of_mujoco("mju_rotVecQuat", 3, v, q), rtol=1e-13)
        back = rotate_inverse(q.tolist(), rotate(q.tolist(), v.tolist()))
        np.testing.assert_allclose(back, v, rtol=1e-13)
        turned = from_axis_angle(axis.tolist(), float(a))
        np.testing.assert_allclose(turned, of_mujoco("mju_axisAngle2Quat", 4, axis, a), **near)
        angles = RNG.uniform(-7, 7, 3)
        euler = from_euler(*angles.tolist())
        np.testing.assert_allclose(euler, of_mujoco("mju_euler2Quat", 4, angles, "XYZ"), rtol=1e-13, atol=1e-15)


def test_between_orientations_are_mujocos_turn_and_scipys_way() -> None:
    for p, q in zip(QUATS, QUATS[1:] + QUATS[:1], strict=True):
        turn = difference(p.tolist(), q.tolist())
        assert np.linalg.norm(turn) == pytest.approx((as_scipy(q).inv() * as_scipy(p)).magnitude(), rel=1e-12)
        np.testing.assert_allclose(turn, of_mujoco("mju_subQuat", 3, p, q), rtol=1e-12, atol=1e-14)
        for t in (0.0, 0.3, 1.0):
            wanted = Slerp([0, 1], Rotation.concatenate([as_scipy(p), as_scipy(q)]))(t)
            assert (as_scipy(slerp(p.tolist(), q.tolist(), t)).inv() * wanted).magnitude() < 1e-12
        np.testing.assert_allclose(slerp(p.tolist(), p.tolist(), 0.3), p, rtol=1e-14, atol=1e-15)


def test_euler_angles_are_those_of_scipy() -> None:
    for q in QUATS:
        roll, pitch, heading = to_euler((3.0 * q).tolist())  # of any length
        np.testing.assert_allclose([roll, pitch, heading], as_scipy(q).as_euler("xyz"), rtol=1e-12, atol=1e-12)
        assert yaw((0.1 * q).tolist()) == pytest.approx(heading, abs=1e-14)


@pytest.mark.parametrize("off", [0.0, 1e-17, 1e-12, 1e-9, 1e-7, 1e-3])
@pytest.mark.parametrize("end", [-1, 1])
def test_euler_angles_stay_a_rotation_where_they_are_not_unique(end: int, off: float) -> None:
    for _ in range(20):
        q = from_euler(RNG.uniform(-3, 3), end * (np.pi / 2 - off), RNG.uniform(-3, 3))
        again = from_euler(*to_euler(q))
        assert (as_scipy(q).inv() * as_scipy(again)).magnitude() < 1e-14


def test_the_length_of_a_vector() -> None:
    v = [3.0, 0.0, -4.0]
    assert vectors.norm(v) == 5.0 and normalize(v) == [0.6000000000000001, 0.0, -0.8]
    for n in (3, 4):
        x = np.zeros(n)
        getattr(mujoco, f"mju_normalize{n}")(x)
        assert normalize([0.0] * n) == x.tolist()
    assert vectors.add(v, v) == vectors.scale(v, 2.0) and vectors.sub(v, v) == [0.0] * 3
    assert vectors.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]) == [0.0, 0.0, 1.0] and vectors.dot(v, v) == 25.0
    with pytest.raises(ValueError, match="zip"):
        vectors.add(v, [1.0])


def test_angles_are_wrapped() -> None:
    for x in (*RNG.uniform(-30, 30, 50).tolist(), 0.0, np.pi, -np.pi, 3 * np.pi + 0.01):
        wrapped = wrap_to_pi(x)
        assert abs(wrapped) <= np.pi
        assert np.exp(1j * wrapped) == pytest.approx(np.exp(1j * x), abs=1e-14)


def test_floats_tensors_and_kernels_agree() -> None:
    x = np.concatenate([np.stack(QUATS, 1), RNG.normal(size=(4, len(QUATS)))])

    def body(b: dict) -> dict:
        x = b["x"]
        q, v, angle = x[:4], x[4:7], x[7]
        turned = from_axis_angle(normalize(v), angle)
        between = [*difference(q, turned), *slerp(q, turned, angle)]
        euler = [*to_euler(q), yaw(q), wrap_to_pi(9.0 * angle)]
        return {"y": [*rotate(q, v), *rotate_inverse(q, v), *euler, *turned, *between]}

    got = run_compiled(trace(body, {"x": x}, {"y": (22, "f")}, "float64"), {"x": x})["y"]
    tensors = torch.stack(body({"x": list(torch.from_numpy(x))})["y"]).numpy()
    plain = np.array([body({"x": column})["y"] for column in x.T.tolist()]).T
    np.testing.assert_allclose(got, plain, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(tensors, plain, rtol=1e-13, atol=1e-14)
