"""Gradient exchange: the only place where gradients cross from machine to machine. One file a method.

| method | on the wire, each step | loss of precision |
|---|---|---|
| `plain` | the gradient in float32 | none |
| `bf16` | the gradient in bfloat16 | bits well below a gradient's noise |
| `powersgd` | two low-rank factors for each matrix | the residual is added to the next step's gradient |
| `local` | every few steps the change of the weights, overlapped with training | workers drift apart in between |

Each worker's gradient is already divided by the tokens of the global batch, so sums are exact for any shares.
`StepStats` travel beside the gradient.
"""
