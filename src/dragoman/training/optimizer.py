"""How gradients change the weights: AdamW, Muon for the matrices, and a running average of the weights."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from dragoman.settings import OptimizerSettings
from dragoman.training.muon import Muon


class Optimizer:
    """One or two of torch's optimizers, driven by one rate, whose state is a flat dictionary of named tensors."""

    def __init__(self, model: nn.Module, settings: OptimizerSettings) -> None:
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        matrices = [(name, parameter) for name, parameter in named if _is_matrix(name, parameter)]
        others = [(name, parameter) for name, parameter in named if not _is_matrix(name, parameter)]
        adamw_groups = [{"params": _values(others), "weight_decay": 0.0}]
        self._optimizers: list[torch.optim.Optimizer] = []
        self._names = [name for name, _ in others]
        if settings.algorithm == "muon":
            parts = [_parts(name) for name, _ in matrices]
            self._optimizers.append(Muon(_values(matrices), parts, settings.weight_decay))
            self._names = [name for name, _ in (*matrices, *others)]
        else:
            adamw_groups.append({"params": _values(matrices), "weight_decay": settings.weight_decay})
            self._names = [name for name, _ in (*others, *matrices)]
        self._optimizers.append(
            torch.optim.AdamW(
                adamw_groups, betas=(settings.beta1, settings.beta2), eps=settings.epsilon, fused=_can_fuse(named)
            )
        )

    def step(self, rate: float) -> None:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()

    def step_unread(self, rate: float, loss: Tensor, norm: Tensor, limit: float) -> None:
        """The same on a GPU, with the gradient clipped to `limit`, unless that is 0, and nothing changed where the loss
        or the norm is not finite; without waiting to know either.
        """
        found_inf = (~(loss + norm).isfinite()).float()
        grad_scale = (norm / limit).clamp(min=1.0) if limit else None
        for optimizer in self._optimizers:
            optimizer.found_inf, optimizer.grad_scale = found_inf, grad_scale  # type: ignore[attr-defined]
        self.step(rate)
        for optimizer in self._optimizers:
            optimizer.found_inf = optimizer.grad_scale = None  # type: ignore[attr-defined]

    def state(self) -> dict[str, Tensor]:
        """All state as tensors, named `parameter/quantity`."""
        return {
            f"{name}/{quantity}": torch.as_tensor(value)
            for name, optimizer, parameter in self._owned()
            for quantity, value in optimizer.state.get(parameter, {}).items()
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        by_parameter: dict[str, dict[str, Tensor]] = {}
        for key, value in state.items():
            name, _, quantity = key.rpartition("/")
            by_parameter.setdefault(name, {})[quantity] = value
        for name, optimizer, parameter in self._owned():
            quantities = by_parameter.get(name, {})
            optimizer.state[parameter] = {
                quantity: value.to(parameter.device, copy=True) for quantity, value in quantities.items()
            }

    def _owned(self) -> Iterable[tuple[str, torch.optim.Optimizer, Tensor]]:
        names = iter(self._names)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    yield next(names), optimizer, parameter


class EMA:
    """An exponential moving average of the weights: smoother than any single step's."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._parameters = dict(model.named_parameters())
        self.weights = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        # Early on the average would remember the random start: it follows faster then.
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.weights.values()), list(self._parameters.values()), 1 - decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the model's weights and the average; a second call puts them back."""
        for name, parameter in self._parameters.items():
            kept = parameter.detach().clone()
            parameter.copy_(self.weights[name])
            self.weights[name].copy_(kept)


def _is_matrix(name: str, parameter: Tensor) -> bool:
    """Weights of linear layers. Embeddings are tables, not maps, and are treated like the rest."""
    return parameter.ndim == 2 and "embedding" not in name


def _parts(name: str) -> int:
    """How many matrices lie together in one parameter. A gated feed-forward's two halves count as one."""
    return next((count for fused, count in _FUSED.items() if fused in name), 1)


_FUSED = {"qkv.": 3, "key_value.": 2}


def _values(named: Iterable[tuple[str, nn.Parameter]]) -> list[nn.Parameter]:
    return [parameter for _, parameter in named]


def _can_fuse(named: Iterable[tuple[str, Tensor]]) -> bool:
    return all(parameter.device.type in ("cpu", "cuda") for _, parameter in named)
