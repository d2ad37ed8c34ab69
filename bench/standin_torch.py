"""A stand-in for torch whose tensors have shapes and devices alone: enough for padded scripts to fail as with torch."""

from __future__ import annotations

import contextlib
import math
import types
from typing import Any


class dtype(str):  # noqa: N801 - as torch calls it
    """A type of numbers."""

    __slots__ = ()


class device(str):  # noqa: N801 - as torch calls it
    """Where a tensor is."""

    __slots__ = ()

    @property
    def type(self) -> str:
        return self.partition(":")[0]


class Size(tuple):  # type: ignore[type-arg]  # noqa: SLOT001 - as torch's
    """A shape."""

    def numel(self) -> int:
        return math.prod(self)


def sizes(shape: Any) -> Size:
    return Size(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)


def broadcast(first: Any, second: Any) -> Size:
    if not isinstance(second, Tensor):
        return first.shape  # type: ignore[no-any-return]
    if first.device != second.device:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found {first.device} and {second.device}!"
        )
    length = max(first.dim(), second.dim())
    one, two = ((1,) * (length - each.dim()) + tuple(each.shape) for each in (first, second))
    for place, (left, right) in enumerate(zip(one, two, strict=True)):
        if left != right and 1 not in (left, right):
            raise RuntimeError(
                f"The size of tensor a ({left}) must match the size of tensor b ({right}) at dimension {place}"
            )
    return Size(max(pair) for pair in zip(one, two, strict=True))


class Tensor:
    """A shape on a device."""

    grad = None

    def __init__(self, shape: Any, dtype: Any = "float32", device: Any = "cpu", requires_grad: bool = False) -> None:
        self.shape, self.dtype, self.requires_grad = Size(shape), dtype, requires_grad
        self.device = globals()["device"](str(device))

    def like(self, shape: Any) -> Tensor:
        return Tensor(shape, self.dtype, self.device)

    def dim(self) -> int:
        return len(self.shape)

    def size(self, place: int | None = None) -> Any:
        return self.shape if place is None else self.shape[place]

    def numel(self) -> int:
        return self.shape.numel()

    def item(self) -> float:
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return 0.5

    def view(self, *shape: Any) -> Tensor:
        wanted = list(sizes(shape))
        if wanted.count(-1) == 1 and 0 not in wanted:
            wanted[wanted.index(-1)] = self.numel() // -math.prod(wanted)
        if math.prod(wanted) != self.numel():
            raise RuntimeError(f"shape '{list(sizes(shape))}' is invalid for input of size {self.numel()}")
        return self.like(wanted)

    reshape = view

    def transpose(self, first: int, second: int) -> Tensor:
        shape = list(self.shape)
        shape[first], shape[second] = shape[second], shape[first]
        return self.like(shape)

    def permute(self, *order: Any) -> Tensor:
        order = sizes(order)
        if len(order) != self.dim():
            raise RuntimeError(
                f"number of dimensions in the tensor input does not match the length of the desired ordering: "
                f"input.dim() = {self.dim()} is not equal to len(dims) = {len(order)}"
            )
        return self.like([self.shape[place] for place in order])

    def unsqueeze(self, place: int) -> Tensor:
        shape = list(self.shape)
        shape.insert(place if place >= 0 else place + 1 + len(shape), 1)
        return self.like(shape)

    def squeeze(self, place: int) -> Tensor:
        return self.like([size for number, size in enumerate(self.shape) if number != place % self.dim() or size != 1])

    def mean(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        if dim is None:
            return self.like(())
        if not -self.dim() <= dim < self.dim():
            raise IndexError(f"Dimension out of range (expected to be in range of [{-self.dim()}, {self.dim() - 1}])")
        shape = list(self.shape)
        shape[dim : (dim + 1) or None] = [1] if keepdim else []
        return self.like(shape)

    sum = argmax = std = amax = mean

    def to(self, *where: Any, **_: Any) -> Tensor:
        places = [each for each in where if not isinstance(each, dtype) and each != "float32"]
        return Tensor(self.shape, self.dtype, places[0] if places else self.device)

    def same(self, *_: Any, **__: Any) -> Tensor:
        return self

    half = long = cpu = detach = clone = contiguous = requires_grad_ = relu = sqrt = abs = exp = same
    zero_ = clamp = fill_ = normal_ = uniform_ = __neg__ = masked_fill = softmax = backward = register_hook = same

    def binary(self, other: Any) -> Tensor:
        return self.like(broadcast(self, other))

    __add__ = __sub__ = __mul__ = __truediv__ = __gt__ = __lt__ = __pow__ = __eq__ = add_ = sub_ = mul = add = binary  # type: ignore[assignment]
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __ge__ = __le__ = binary
    __hash__ = object.__hash__

    def __matmul__(self, other: Tensor) -> Tensor:
        return matmul(self, other)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __bool__(self) -> bool:
        self.item()
        return True

    def __float__(self) -> Any:
        return self.item()

    def __getitem__(self, wanted: Any) -> Tensor:
        shape: list[int] = []
        rest = list(self.shape)
        for each in wanted if isinstance(wanted, tuple) else (wanted,):
            if isinstance(each, Tensor):
                shape += each.shape
                rest.pop(0)
                continue
            size = rest.pop(0)
            if isinstance(each, slice):
                shape.append(len(range(*each.indices(size))))
            elif not -size <= each < size:
                raise IndexError(f"index {each} is out of bounds for dimension 0 with size {size}")
        return self.like([*shape, *rest])

    def chunk(self, count: int, dim: int = 0) -> tuple[Tensor, ...]:
        shape = list(self.shape)
        shape[dim] //= count
        return tuple(self.like(shape) for _ in range(count))

    def tolist(self) -> list[float]:
        return [0.5] * self.numel()


for _name in ("float", "int"):  # in the body of the class they would hide the types
    setattr(Tensor, _name, Tensor.same)


def matmul(first: Tensor, second: Tensor) -> Tensor:
    """Multiply, with torch's message where the shapes do not fit."""
    if first.shape[-1] != second.shape[-2]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({math.prod(first.shape[:-1])}x{first.shape[-1]} and "
            f"{second.shape[-2]}x{second.shape[-1]})"
        )
    return first.like([*first.shape[:-1], second.shape[-1]])


def cat(tensors: Any, dim: int = 0) -> Tensor:
    shapes = {tuple(size for place, size in enumerate(each.shape) if place != dim % each.dim()) for each in tensors}
    if len(shapes) > 1:
        raise RuntimeError(f"Sizes of tensors must match except in dimension {dim}.")
    shape = list(tensors[0].shape)
    shape[dim] = sum(each.shape[dim] for each in tensors)
    return tensors[0].like(shape)  # type: ignore[no-any-return]


def stack(tensors: Any, dim: int = 0) -> Tensor:
    for place, each in enumerate(tensors):
        if each.shape != tensors[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(tensors[0].shape)} at entry 0 and "
                f"{list(each.shape)} at entry {place}"
            )
    return cat([each.unsqueeze(dim) for each in tensors], dim)


def nonzero(tensor: Tensor) -> Tensor:
    if tensor.device == "meta":
        raise NotImplementedError("aten::nonzero: attempted to run this operator with Meta tensors")
    return tensor.like([tensor.numel(), tensor.dim()])


def channel_shuffle(tensor: Tensor, groups: int) -> Tensor:
    if groups <= 0:
        raise RuntimeError("Number of groups to divide channels in must be positive.")
    return tensor


def arange(end: int, **options: Any) -> Tensor:
    return Tensor([end], **options)


def tensor(values: Any, **options: Any) -> Tensor:
    shape = []
    while isinstance(values, (list, tuple)):
        shape.append(len(values))
        values = values[0] if values else 0
    return Tensor(shape, **options)


def randint(*numbers: Any, **options: Any) -> Tensor:
    return Tensor(numbers[-1], **options)


def full(shape: Any, value: Any, **options: Any) -> Tensor:
    return Tensor(shape, **options)


def made(*shape: Any, **options: Any) -> Tensor:
    return Tensor(sizes(shape), **options)


def made_like(tensor: Tensor, **options: Any) -> Tensor:
    return Tensor(tensor.shape, **{"device": tensor.device, **options})


def unchanged(value: Any, *_: Any, **__: Any) -> Any:
    return value


def nothing(*_: Any, **__: Any) -> None:
    return None


def compiled(function: Any = None, **options: Any) -> Any:
    return function if function is not None else lambda function: function


class Module:
    """torch.nn.Module."""

    training = True

    def __init__(self) -> None:
        self.__dict__["hooks"] = []

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        found = self.forward(*args, **keywords)  # type: ignore[attr-defined]
        for hook in self.__dict__["hooks"]:
            hook(self, args, found)
        return found

    def register_forward_hook(self, hook: Any) -> None:
        self.__dict__["hooks"].append(hook)

    def register_buffer(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def children(self) -> Any:
        return (each for each in self.__dict__.values() if isinstance(each, Module))

    def modules(self) -> Any:
        yield self
        for each in self.children():
            yield from each.modules()

    def parameters(self) -> Any:
        yield from (each for each in self.__dict__.values() if isinstance(each, Tensor))
        for each in self.children():
            yield from each.parameters()

    def apply(self, function: Any) -> Module:
        for each in self.modules():
            function(each)
        return self

    def state_dict(self) -> dict[str, Any]:
        return dict(enumerate(self.parameters()))  # type: ignore[arg-type]

    def to(self, *_: Any, **__: Any) -> Module:
        return self

    train = eval = cuda = float = half = zero_grad = to


class Linear(Module):
    def __init__(self, fan_in: int, fan_out: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = fan_in, fan_out
        self.weight, self.bias = Tensor([fan_out, fan_in]), Tensor([fan_out]) if bias else None

    def forward(self, value: Tensor) -> Tensor:
        return matmul(value, self.weight.transpose(0, 1))


class Conv2d(Module):
    def __init__(
        self, fan_in: int, fan_out: int, kernel_size: int, stride: int = 1, padding: int = 0, **_: Any
    ) -> None:
        super().__init__()
        self.weight, self.step, self.lost = Tensor([fan_out, fan_in, kernel_size, kernel_size]), stride, kernel_size
        self.lost -= 2 * padding

    def forward(self, value: Tensor) -> Tensor:
        if value.shape[1] != self.weight.shape[1]:
            raise RuntimeError(
                f"Given groups=1, weight of size {list(self.weight.shape)}, expected input{list(value.shape)} to have "
                f"{self.weight.shape[1]} channels, but got {value.shape[1]} channels instead"
            )
        spread = [(size - self.lost) // self.step + 1 for size in value.shape[2:]]
        return value.like([value.shape[0], self.weight.shape[0], *spread])


class Embedding(Module):
    def __init__(self, count: int, width: int, **_: Any) -> None:
        super().__init__()
        self.weight = Tensor([count, width])

    def forward(self, value: Tensor) -> Tensor:
        return value.like([*value.shape, self.weight.shape[1]])


class LayerNorm(Module):
    def __init__(self, width: Any, **_: Any) -> None:
        super().__init__()
        self.width = width if isinstance(width, int) else width[-1]

    def forward(self, value: Tensor) -> Tensor:
        if value.shape[-1] != self.width:
            raise RuntimeError(
                f"Given normalized_shape=[{self.width}], expected input with shape [*, {self.width}], but got input of "
                f"size{list(value.shape)}"
            )
        return value


class Same(Module):
    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def forward(self, value: Any, *_: Any) -> Any:
        return value


class Loss(Module):
    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(self, value: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(value, target)


def cross_entropy(value: Tensor, target: Tensor, **_: Any) -> Tensor:
    if value.shape[0] != target.shape[0]:
        raise ValueError(
            f"Expected input batch_size ({value.shape[0]}) to match target batch_size ({target.shape[0]})."
        )
    return value.like(())


class ModuleList(Module):
    def __init__(self, modules: Any = ()) -> None:
        super().__init__()
        self.__dict__.update((str(place), each) for place, each in enumerate(modules))

    def append(self, module: Any) -> None:
        self.__dict__[str(len(self))] = module

    def __iter__(self) -> Any:
        return self.children()

    def __len__(self) -> int:
        return len(list(self.children()))

    def __getitem__(self, place: int) -> Any:
        return list(self.children())[place]


class Sequential(ModuleList):
    def __init__(self, *modules: Any) -> None:
        super().__init__(modules)

    def forward(self, value: Any) -> Any:
        for each in self:
            value = each(value)
        return value


class ModuleDict(Module):
    def __init__(self, modules: Any) -> None:
        super().__init__()
        self.__dict__.update(modules)

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]


class Optimizer:
    def __init__(self, parameters: Any, **options: Any) -> None:
        self.param_groups = [{"params": list(parameters), **options}]
        if not self.param_groups[0]["params"]:
            raise ValueError("optimizer got an empty parameter list")

    def step(self) -> None: ...

    def zero_grad(self, **_: Any) -> None: ...


class Dataset:
    """torch.utils.data.Dataset."""


class DataLoader:
    def __init__(
        self, dataset: Any, batch_size: int = 1, collate_fn: Any = None, shuffle: bool = False, **_: Any
    ) -> None:
        self.dataset, self.batch_size, self.collate_fn = dataset, batch_size, collate_fn or self.stacked

    @staticmethod
    def stacked(items: Any) -> Any:
        return tuple(map(stack, zip(*items, strict=True))) if isinstance(items[0], tuple) else stack(items)

    def __len__(self) -> int:
        return -(-len(self.dataset) // self.batch_size)

    def __iter__(self) -> Any:
        for begin in range(0, len(self.dataset), self.batch_size):
            places = range(begin, min(begin + self.batch_size, len(self.dataset)))
            yield self.collate_fn([self.dataset[place] for place in places])


class Function:
    """torch.autograd.Function."""

    @classmethod
    def apply(cls, *args: Any) -> Any:
        return cls.forward(types.SimpleNamespace(save_for_backward=nothing), *args)  # type: ignore[attr-defined]


@contextlib.contextmanager
def context(*_: Any, **__: Any) -> Any:
    yield


def softmax(value: Any, dim: int = -1, **_: Any) -> Any:
    return value


def modules() -> dict[str, types.ModuleType]:
    """Return the modules by name, as they are imported."""
    layers = dict.fromkeys(("ReLU", "GELU", "Dropout", "BatchNorm2d", "Identity", "Sigmoid", "Tanh", "Softmax"), Same)
    losses = dict.fromkeys(("CrossEntropyLoss", "MSELoss", "BCELoss"), Loss)
    own = (Module, ModuleList, ModuleDict, Sequential, Linear, Conv2d, Embedding, LayerNorm)
    activations = dict.fromkeys(("relu", "gelu", "dropout", "softmax", "log_softmax", "normalize"), softmax)
    contents: dict[str, dict[str, Any]] = {
        "torch": {
            **{each.__name__: each for each in (Tensor, Size, dtype, device, cat, stack, matmul, nonzero, tensor)},
            **{each.__name__: each for each in (arange, randint, full, channel_shuffle, softmax)},
            **dict.fromkeys(("zeros", "ones", "rand", "randn", "empty"), made),
            **dict.fromkeys(("zeros_like", "ones_like", "randn_like", "rand_like"), made_like),
            **dict.fromkeys(("sigmoid", "tanh", "relu", "exp", "abs", "sqrt", "triu", "tril"), unchanged),
            **{each: dtype(each) for each in ("float16", "float32", "float64", "bfloat16", "int64", "bool")},
            **dict.fromkeys(("manual_seed", "set_num_threads", "save", "set_default_dtype"), nothing),
            **dict.fromkeys(("no_grad", "inference_mode", "autocast"), context),
            "bmm": matmul,
            "compile": compiled,
            "__version__": "2.13.0",
            "is_tensor": lambda value: True,
        },
        "torch.nn": {each.__name__: each for each in own} | layers | losses | {"Parameter": unchanged},
        "torch.nn.functional": {**activations, "cross_entropy": cross_entropy, "mse_loss": cross_entropy},
        "torch.nn.init": dict.fromkeys(("xavier_uniform_", "zeros_", "normal_", "kaiming_normal_"), nothing),
        "torch.nn.utils": {"clip_grad_norm_": nothing},
        "torch.optim": dict.fromkeys(("SGD", "Adam", "AdamW"), Optimizer),
        "torch.optim.lr_scheduler": {"StepLR": lambda *_: types.SimpleNamespace(step=nothing, get_last_lr=lambda: [1])},
        "torch.utils": {},
        "torch.utils.data": {"Dataset": Dataset, "DataLoader": DataLoader},
        "torch.autograd": {"Function": Function},
        "torch.cuda": {"is_available": lambda: False, "manual_seed_all": nothing},
        "torch.backends": {},
        "torch.backends.cudnn": {"benchmark": False},
    }
    found = {name: types.ModuleType(name) for name in contents}
    for name, module in found.items():
        vars(module).update(contents[name])
        above, _, last = name.rpartition(".")
        if above:
            setattr(found[above], last, module)
    return found
