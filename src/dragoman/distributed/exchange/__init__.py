"""Gradient exchange: the only place where gradients are sent between workers. One file per method.

| method | sent in each step | loss of precision |
|---|---|---|
| `plain` | the gradient in float32 | none |
| `bf16` | the gradient in bfloat16 | rounding, well below the gradient noise |
| `powersgd` | two low-rank factors for each matrix | the residual is added to the next step's gradient |
| `local` | the change of the weights, every few steps, overlapped with compute | weights differ in between |

Each worker's gradient is already divided by the tokens of the global batch, so sums are exact for any shares.
`StepStats` are sent together with the gradient.
"""
