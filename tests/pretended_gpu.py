"""A GPU that is not there: tensors that say they are on cuda:0, with their numbers in the CPU's memory.

As on a GPU, an operation over tensors of two devices fails, tensors do not become arrays by themselves, random numbers
come from a generator of their own, a CUDA graph holds only what is done on the GPU, and the host cannot wait for the
GPU in a capture. Kernels are the CPU's. So this finds where devices are mixed up, and nothing about kernels.

Other threads and processes do not see it; nor do functions that torch calls on the way back from `torch.autograd.grad`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from launches import RecordedGraph, record_graphs
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

from torch_mjenvs.compiler import devices
from torch_mjenvs.compiler.back_end import BackEnd

THERE, CPU = torch.device("cuda", 0), torch.device("cpu")
COPIES = {"copy_", "_foreach_copy_"}  # take tensors of any device
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}  # take indices on the CPU
ALIKE = {"cat", "stack", "mm", "mv", "bmm", "addmm", "dot"}  # do not even take a single number on the CPU
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero"}
FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray)
DRAWS = {"rand", "randn", "randint", "randperm", "normal"}


class OnGpu(torch.Tensor):
    """A tensor of the pretended GPU. `held` has its numbers."""

    held: torch.Tensor
    device = property(lambda self: THERE)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> OnGpu:
        out: OnGpu = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype
        )
        out.held = held
        return out

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), func.overloadpacket.__name__
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        _check_devices(name, [args[0], *tree_leaves(args[2:])] if name in INDEXED else given)
        if name in INDEXED:
            waits = any(x is not None and x.dtype == torch.bool for x in args[1])
        else:
            waits = name in WAITING or (name == "copy_" and type(args[0]) is not type(args[1]))
        if waits:
            _wait(name)
        if any(x.name == "generator" for x in func._schema.arguments):
            kwargs["generator"] = kwargs.get("generator") or _random
        seen = {id(x.held): x for x in given if isinstance(x, OnGpu)}
        plain, named = _held((args, kwargs))
        out = func(*plain, **named)
        if out is None or (name == "copy_" and not isinstance(args[0], OnGpu)):
            return out
        out = tree_map(lambda x: seen[id(x)] if id(x) in seen else _put(x), out)
        return return_and_correct_aliasing(func, args, kwargs, out)

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def untyped_storage(self) -> Any:
        return self.held.untyped_storage()

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return moved(self, *args, **kwargs)

    def cpu(self, *_: Any) -> torch.Tensor:
        return moved(self, CPU)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy it first")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def __format__(self, spec: str) -> str:
        return format(self.cpu(), spec)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"OnGpu({self.held})"

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return _loaded, (self.held.detach(),)

    def __deepcopy__(self, memo: dict) -> torch.Tensor:
        with torch.no_grad():
            copied = self.clone().requires_grad_(self.requires_grad)
        copied._is_param = getattr(self, "_is_param", False)  # type: ignore[attr-defined]
        return memo.setdefault(id(self), copied)


def _put(x: Any) -> Any:
    return OnGpu(x) if type(x) is torch.Tensor else x


def _held(tree: Any) -> Any:
    return tree_map(lambda x: x.held if isinstance(x, OnGpu) else x, tree)


def _loaded(held: torch.Tensor) -> torch.Tensor:
    return OnGpu(held) if is_there(_loading[-1:] or THERE) else held


def _wait(name: str) -> None:
    if _capturing:
        raise RuntimeError(f"operation not permitted when stream is capturing: {name}")


def _check_devices(name: str, given: list) -> None:
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    strangers = [x for x in tensors if not isinstance(x, OnGpu) and (x.dim() or name in ALIKE)]
    if strangers and name not in COPIES:
        shapes = [(*x.shape, str(x.device)) for x in tensors]
        raise RuntimeError(f"{name}: expected all tensors to be on the same device, but got {shapes}")


def is_there(device: Any) -> bool:
    device = device[0] if isinstance(device, list) else device
    return isinstance(device, (str, torch.device)) and torch.device(device).type == "cuda"


class Crossing(torch.autograd.Function):
    """From one device to the other."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        _wait("to")
        return x.held.clone() if isinstance(x, OnGpu) else OnGpu(x.clone())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return Crossing.apply(grad)


def moved(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """As Tensor.to."""
    device, copy = kwargs.pop("device", None), kwargs.pop("copy", False)
    if args and isinstance(args[0], torch.Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    if args and (args[0] is None or isinstance(args[0], (str, torch.device))):
        device, *args = args  # type: ignore[assignment]
    dtype = next((y for y in args if isinstance(y, torch.dtype)), kwargs.pop("dtype", None)) or x.dtype
    if device is not None and is_there(device) != isinstance(x, OnGpu):
        x = Crossing.apply(x)
    elif copy:
        x = x.clone()
    return torch.Tensor.to(x, dtype)


class Graph(RecordedGraph):
    """A graph of what is done on the GPU; what is done on the CPU meanwhile is not in it."""

    def __enter__(self) -> Any:
        _capturing.append(self)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        _capturing.pop()
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if _making or any(isinstance(x, OnGpu) for x in tree_leaves((args, kwargs, out))):
            given, named, made = _held((args, kwargs or {}, out))
            if any(x.name == "generator" for x in func._schema.arguments):
                named["generator"] = named.get("generator") or _random
            self._nodes.append((func, given, named, made))
        return out


class ThatGpu(TorchFunctionMode):
    """Makes tensors there that are meant to be on a GPU, and takes others there."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.Tensor.cpu):
            return moved(args[0], THERE if func is torch.Tensor.cuda else CPU)
        if func is torch.Tensor.to:
            return moved(*args, **kwargs)
        if func is torch.Tensor.backward:
            with self:  # as functions in it make tensors, too
                return torch.autograd.backward(args[0], args[1] if len(args) > 1 else None)
        device = kwargs.pop("device", None)
        there = is_there(device)
        of_gpu = any(isinstance(x, OnGpu) for x in args)
        if kwargs.get("generator") is not None and (there or of_gpu) != isinstance(kwargs["generator"], Generator):
            raise RuntimeError("the generator is on another device than the tensor")
        if not there:
            if device is not None:
                args = tuple(x.held.clone() if isinstance(x, OnGpu) else x for x in args)
                kwargs["device"] = device
            return func(*args, **kwargs)
        if func in FROM_DATA and isinstance(args[0], torch.Tensor):
            return moved(func(*args, **kwargs), THERE)
        if func.__name__ in DRAWS:
            kwargs["generator"] = kwargs.get("generator") or _random
        wanted = kwargs.pop("requires_grad", False)
        _making.append(func)
        try:
            found = tree_map(_put, func(*args, **kwargs, **({} if of_gpu else {"device": CPU})))
        finally:
            _making.pop()
        return found.requires_grad_() if wanted else found


class Generator(torch.Generator):
    """A generator of the pretended GPU, if it is made for one."""

    device = property(lambda self: THERE)  # type: ignore[assignment]

    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls) if is_there(device) else _CpuGenerator(device)


_CpuGenerator = torch.Generator
_random = Generator("cuda")
_loading: list[Any] = []  # map_location of torch.load
_capturing: list[Graph] = []
_making: list[Any] = []  # what makes a tensor on the GPU


def _load(load: Callable) -> Callable:
    def load_to(file: Any, map_location: Any = None, **how: Any) -> Any:
        _loading.append(map_location or "cuda")
        try:
            found = load(file, "cpu", **how)
        finally:
            _loading.pop()
        return tree_map(lambda x: x.cuda() if isinstance(x, torch.Tensor) and is_there(map_location) else x, found)

    return load_to


def _back_end(of: Callable[[torch.device], BackEnd]) -> Callable[[torch.device], BackEnd]:
    def back_end(device: torch.device) -> BackEnd:
        cpu = of(CPU)

        def load(*what: Any) -> Any:
            kernel = cpu.load(*what)
            kernel.device = device
            return kernel

        return dataclasses.replace(cpu, device=device, load=load)

    return back_end


def _apply(apply: Callable) -> Callable:
    def applied(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Modules that move keep their parameters, with other contents."""
        before = torch.__future__.get_swap_module_params_on_conversion()
        lazy = any(map(torch.nn.parameter.is_lazy, module.parameters()))
        torch.__future__.set_swap_module_params_on_conversion(not lazy)
        try:
            return apply(module, *args, **kwargs)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(before)

    return applied


@contextlib.contextmanager
def pretended_gpu() -> Iterator[list]:
    """Have torch see a GPU while the block runs. Yields what `record_graphs` gives."""
    answers = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_capability": (9, 0),
        "synchronize": None, "set_device": None, "empty_cache": None, "_lazy_init": None, "_lazy_call": None,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, torch.serialization.safe_globals([_loaded]):
        put = patch.setattr
        seen = record_graphs(patch)
        for name, value in answers.items():
            put(torch.cuda, name, lambda *_, value=value, **__: value)
        stream = torch.cuda.Stream
        for name in ("Stream", "current_stream"):
            put(torch.cuda, name, lambda *x, **_: SimpleNamespace(**vars(stream(*x)), synchronize=lambda: None))
        put(torch.cuda, "CUDAGraph", lambda: Graph(lambda: seen.append("replay")))
        put(torch.cuda, "is_current_stream_capturing", lambda: bool(_capturing))
        put(torch.cuda, "get_rng_state", lambda *_: _random.get_state())
        put(torch.cuda, "set_rng_state", lambda state, *_: _random.set_state(state))
        put(torch.cuda, "manual_seed_all", _random.manual_seed)
        put(torch.cuda, "manual_seed", _random.manual_seed)
        put(torch.accelerator, "current_accelerator", lambda **_: torch.device("cuda"))
        put(torch.accelerator, "current_stream", lambda *_: SimpleNamespace(is_capturing=lambda: bool(_capturing)))
        put(torch.version, "cuda", "13.0")
        put(torch, "load", _load(torch.load))
        put(torch, "Generator", Generator)
        dlpack, capsule = torch.from_dlpack, torch.utils.dlpack.to_dlpack
        put(torch.utils.dlpack, "to_dlpack", lambda x: x if isinstance(x, OnGpu) else capsule(x))
        for module in (torch, torch.utils.dlpack):
            put(module, "from_dlpack", lambda x, **_: _put(dlpack(x.held)) if isinstance(x, OnGpu) else dlpack(x))
        grouped = torch._C._group_tensors_by_device_and_dtype
        put(
            torch._C, "_group_tensors_by_device_and_dtype",
            lambda *x: {(y[0][0][0].device, dtype): y for (_, dtype), y in grouped(*x).items()},
        )  # fmt: skip
        put(torch.nn.Module, "_apply", _apply(torch.nn.Module._apply))
        put(devices, "back_end", _back_end(devices.back_end))
        with ThatGpu():
            yield seen
