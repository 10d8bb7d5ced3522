#!/usr/bin/env python3
"""Write gpt.safetensors and ops.safetensors, what PyTorch computes where triax must agree.

    python3 tests/reference/make_fixture.py       (needs torch and safetensors)

Everything is computed in float64 from inputs that are exactly float32, and stored as F32 (ids as
I64), so the files are right to half a unit of float32. Both files are deterministic.

gpt.safetensors: the model of bench/peers/reference_gpt.py; the sizes and hyperparameters are metadata.
    tokens, targets [batch, context]
    weights/NAME            the start; biases, gammas and betas are random here, so that none hides
    logits [batch * context, vocab], loss [1]
    grads/NAME, grad_norm [1]                        of that batch, before clipping
    step1/NAME, step10/NAME                          weights after one and ten AdamW steps
    losses [10], grad_norms [10]                     of the ten steps, all on the same batch
Clipping multiplies all gradients by min(1, clip / (norm + 1e-6)). The bias of a key has no effect,
so its gradient is 0 but for rounding, of which AdamW makes a step of up to lr: after a step compare
key biases only in float64 (block{i}.qkv.bias, seen as [heads, 3, head_dim], at [:, 1]).

ops.safetensors: one group of tensors per case, CASE/x and so on; options are metadata CASE.option.
    softmax, log_softmax, gelu, gelu_erf, silu       x, y, dy, dx           [rows, width]
    layer_norm                                       x, gamma, beta, y, dy, dx, dgamma, dbeta
    rms_norm                                         x, gamma, y, dy, dx, dgamma
    cross_entropy, cross_entropy_sum, cross_entropy_ignore, cross_entropy_smooth,
    cross_entropy_ignore_smooth                      x [rows, classes], targets [rows], y [1], dx
        options: ignore, smoothing, reduction (mean or sum)
    sgd, sgd_decay, sgd_momentum, sgd_nesterov, sgd_momentum_decay, sgd_nesterov_decay
        w [rows, width], grads and after [5, rows, width]
        options: lr, momentum, weight_decay, nesterov (0 or 1); five steps with the given gradients
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench/peers"))
from reference_gpt import Config, Gpt, adamw  # noqa: E402

PRECISION = "computed in float64, stored as float32"


def normal(*shape: int, std: float = 1.0, mean: float = 0.0) -> Tensor:
    """Random float64 values that float32 holds exactly."""
    return torch.randn(*shape, dtype=torch.float32).mul(std).add(mean).double()


def sort_metadata(path: Path) -> None:
    """The package writes metadata in random order; sorted, the same values give the same bytes."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode().ljust(end - 8)
    path.write_bytes(data[:8] + text + data[end:])


def save(name: str, tensors: dict[str, Tensor], metadata: dict[str, object]) -> None:
    stored = {
        key: (value if value.dtype == torch.int64 else value.float()).detach().clone().contiguous()
        for key, value in tensors.items()
    }
    text = {"precision": PRECISION} | {key: str(value) for key, value in metadata.items()}
    path = HERE / f"{name}.safetensors"
    save_file(stored, path, metadata=text)
    sort_metadata(path)
    path.chmod(0o644)
    print(f"{path}: {len(stored)} tensors, {path.stat().st_size:,} bytes")


def clip_factor(norm: Tensor, clip: float) -> float:
    return min(1.0, clip / (norm.item() + 1e-6))


def gpt_fixture(c: Config, batch: int, lr: float, decay: float, clip: float) -> dict[str, Tensor]:
    model = Gpt(c).double()
    for name, parameter in model.named_parameters():
        mean = 1.0 if name.endswith("gamma") else 0.0
        # Large enough that attention is far from uniform.
        std = 0.2 if parameter.ndim == 2 else 0.1
        parameter.data = normal(*parameter.shape, std=std, mean=mean)
    ids = torch.randint(c.vocab, (batch, c.context + 1))
    tokens, targets = ids[:, :-1], ids[:, 1:]
    out = {"tokens": tokens, "targets": targets, "logits": model(tokens).flatten(0, 1)}

    def keep(prefix: str, gradients: bool = False) -> None:
        for name, parameter in model.named_parameters():
            value = parameter.grad if gradients else parameter
            out[f"{prefix}/{name}"] = value.detach().clone()

    keep("weights")
    optimizer = adamw(model, lr, decay, foreach=False)
    losses, norms = [], []
    for step in range(1, 11):
        optimizer.zero_grad()
        loss = model.loss(tokens, targets)
        loss.backward()
        norm = torch.stack([p.grad.square().sum() for p in model.parameters()]).sum().sqrt()
        if step == 1:
            keep("grads", gradients=True)
        for parameter in model.parameters():
            parameter.grad.mul_(clip_factor(norm, clip))
        optimizer.step()
        losses.append(loss.detach())
        norms.append(norm)
        if step in (1, 10):
            keep(f"step{step}")
    out["losses"], out["grad_norms"] = torch.stack(losses), torch.stack(norms)
    out["loss"], out["grad_norm"] = out["losses"][:1], out["grad_norms"][:1]
    return out


def op_cases() -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}

    def run(case: str, op, **inputs: Tensor) -> None:
        """Keep the inputs, the result, a random dy, and the gradient of every input."""
        leaves = {name: value.requires_grad_() for name, value in inputs.items()}
        y = op(**leaves)
        dy = normal(*y.shape)
        y.backward(dy)
        out.update({f"{case}/{name}": value for name, value in leaves.items()})
        out.update({f"{case}/d{name}": value.grad for name, value in leaves.items()})
        out.update({f"{case}/y": y, f"{case}/dy": dy})

    def rows() -> Tensor:
        """Rows of very different size and offset, into the far tails."""
        x = normal(6, 19, std=2.0)
        x[1] += 100
        x[2] *= 1e-3
        x[3, ::5] -= 40
        x[4] *= 5
        return x.float().double()

    run("softmax", lambda x: F.softmax(x, -1), x=rows())
    run("log_softmax", lambda x: F.log_softmax(x, -1), x=rows())
    run("gelu", lambda x: F.gelu(x, approximate="tanh"), x=rows())
    run("gelu_erf", lambda x: F.gelu(x), x=rows())
    run("silu", lambda x: F.silu(x), x=rows())
    gamma, beta = normal(19, std=0.5, mean=1.0), normal(19)

    def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], gamma, beta, 1e-5)

    def rms_norm(x: Tensor, gamma: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], gamma, 1e-5)

    run("layer_norm", layer_norm, x=rows(), gamma=gamma.clone(), beta=beta)
    run("rms_norm", rms_norm, x=rows(), gamma=gamma.clone())
    return out


def cross_entropy_cases() -> tuple[dict[str, Tensor], dict[str, object]]:
    out, options = {}, {}
    for case, ignored, smoothing, reduction in [
        ("cross_entropy", False, 0.0, "mean"),
        ("cross_entropy_sum", False, 0.0, "sum"),
        ("cross_entropy_ignore", True, 0.0, "mean"),
        ("cross_entropy_smooth", False, 0.1, "mean"),
        ("cross_entropy_ignore_smooth", True, 0.25, "mean"),
    ]:
        x = normal(7, 13, std=3.0).requires_grad_()
        targets = torch.randint(13, (7,))
        if ignored:
            targets[[1, 4]] = -1
        y = F.cross_entropy(
            x, targets, ignore_index=-1, label_smoothing=smoothing, reduction=reduction
        )
        y.backward()
        values = {"x": x, "targets": targets, "y": y.reshape(1), "dx": x.grad}
        out.update({f"{case}/{name}": value for name, value in values.items()})
        chosen = {"ignore": -1, "smoothing": smoothing, "reduction": reduction}
        options.update({f"{case}.{name}": value for name, value in chosen.items()})
    return out, options


def sgd_cases() -> tuple[dict[str, Tensor], dict[str, object]]:
    out, options = {}, {}
    for case, momentum, decay, nesterov in [
        ("sgd", 0.0, 0.0, False),
        ("sgd_decay", 0.0, 0.05, False),
        ("sgd_momentum", 0.9, 0.0, False),
        ("sgd_nesterov", 0.9, 0.0, True),
        ("sgd_momentum_decay", 0.9, 0.05, False),
        ("sgd_nesterov_decay", 0.9, 0.05, True),
    ]:
        w, grads, after = normal(5, 7), normal(5, 5, 7), []
        chosen = {"lr": 0.1, "momentum": momentum, "weight_decay": decay}
        parameter = torch.nn.Parameter(w.clone())
        optimizer = torch.optim.SGD([parameter], nesterov=nesterov, foreach=False, **chosen)
        for gradient in grads:
            parameter.grad = gradient.clone()
            optimizer.step()
            after.append(parameter.detach().clone())
        out.update({f"{case}/w": w, f"{case}/grads": grads, f"{case}/after": torch.stack(after)})
        chosen["nesterov"] = int(nesterov)
        options.update({f"{case}.{name}": value for name, value in chosen.items()})
    return out, options


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(20261)
    config = Config(layers=2, heads=3, width=24, context=10, vocab=29)
    batch, lr, decay, clip = 3, 1e-3, 0.1, 1.0
    sizes = {k: v for k, v in vars(config).items() if k != "dropout"}
    steps = {"lr": lr, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
    steps |= {"weight_decay": decay, "clip": clip}
    save("gpt", gpt_fixture(config, batch, lr, decay, clip), sizes | {"batch": batch} | steps)

    torch.manual_seed(20262)
    entropy, entropy_options = cross_entropy_cases()
    sgd, sgd_options = sgd_cases()
    norms = {"layer_norm.eps": 1e-5, "rms_norm.eps": 1e-5}
    save("ops", op_cases() | entropy | sgd, norms | entropy_options | sgd_options)


if __name__ == "__main__":
    main()
