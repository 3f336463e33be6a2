"""The optimizer: AdamW for all parameters, or Muon for the matrices and AdamW for the rest."""

import inspect
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from dragoman.settings import OptimizerSettings
from dragoman.training.muon import Muon


class EagerAdamW(torch.optim.AdamW):
    """AdamW that `torch.compile` cannot trace: torch's would import the compiler, for more than a second."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


class Optimizer:
    """One or two torch optimizers with one learning rate, whose state is a flat dictionary of named tensors."""

    def __init__(self, model: nn.Module, settings: OptimizerSettings) -> None:
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        matrices = [(name, parameter) for name, parameter in named if _is_matrix(name, parameter)]
        others = [(name, parameter) for name, parameter in named if not _is_matrix(name, parameter)]
        adamw_groups = [{"params": _values(others), "weight_decay": 0.0}]
        self._optimizers: list[torch.optim.Optimizer] = []
        if settings.algorithm == "muon" and matrices:
            parts = [_parts(name) for name, _ in matrices]
            self._optimizers.append(Muon(_values(matrices), parts, settings.weight_decay))
            self._names = [name for name, _ in (*matrices, *others)]
        else:
            adamw_groups.append({"params": _values(matrices), "weight_decay": settings.weight_decay})
            self._names = [name for name, _ in (*others, *matrices)]
        self._optimizers.append(
            EagerAdamW(
                adamw_groups, betas=(settings.beta1, settings.beta2), eps=settings.epsilon, fused=_can_fuse(named)
            )
        )

    def step(self, learning_rate: float) -> None:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
            optimizer.step()

    def clip_and_step(self, learning_rate: float, norm: float, clip_norm: float) -> None:
        """Clip the gradient of norm `norm` to `clip_norm` (0: no clipping), and step."""
        if clip_norm and norm > clip_norm:
            torch._foreach_mul_(
                [parameter.grad for *_, parameter in self._named_parameters() if parameter.grad is not None],
                clip_norm / norm,
            )
        self.step(learning_rate)

    def clip_and_step_if_finite(self, learning_rate: float, loss: Tensor, norm: Tensor, clip_norm: float) -> None:
        """The same without reading loss and norm from a GPU: nothing changes if one of them is not finite."""
        found_inf = (~(loss + norm).isfinite()).float()
        grad_scale = (norm / clip_norm).clamp(min=1.0) if clip_norm else None
        for optimizer in self._optimizers:
            optimizer.found_inf, optimizer.grad_scale = found_inf, grad_scale  # type: ignore[attr-defined]
        self.step(learning_rate)
        for optimizer in self._optimizers:
            optimizer.found_inf = optimizer.grad_scale = None  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Tensor]:
        """All state as tensors, named `parameter/quantity`."""
        return {
            f"{name}/{quantity}": torch.as_tensor(value)
            for name, optimizer, parameter in self._named_parameters()
            for quantity, value in optimizer.state.get(parameter, {}).items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        by_parameter: dict[str, dict[str, Tensor]] = {}
        for key, value in state.items():
            name, _, quantity = key.rpartition("/")
            by_parameter.setdefault(name, {})[quantity] = value
        for name, optimizer, parameter in self._named_parameters():
            quantities = by_parameter.get(name, {})
            optimizer.state[parameter] = {
                quantity: value.to(parameter.device, copy=True) for quantity, value in quantities.items()
            }

    def _named_parameters(self) -> Iterable[tuple[str, torch.optim.Optimizer, Tensor]]:
        """All parameters with their names and optimizers."""
        names = iter(self._names)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    yield next(names), optimizer, parameter


_FUSED = {"qkv.": 3, "key_value.": 2}
"""Matrices stacked in one parameter, by a part of its name."""


def _is_matrix(name: str, parameter: Tensor) -> bool:
    """True for the weights of linear layers. An embedding is a lookup table, not a linear map."""
    return parameter.ndim == 2 and "embedding" not in name


def _parts(name: str) -> int:
    """Number of matrices fused in one parameter. The two halves of a gated feed-forward layer count as one."""
    return next((count for fused, count in _FUSED.items() if fused in name), 1)


def _values(named: Iterable[tuple[str, nn.Parameter]]) -> list[nn.Parameter]:
    return [parameter for _, parameter in named]


def _can_fuse(named: Iterable[tuple[str, Tensor]]) -> bool:
    return all(parameter.device.type in ("cpu", "cuda") for _, parameter in named)
