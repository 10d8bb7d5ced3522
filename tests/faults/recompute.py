"""Faults in what is made again in backward: activations and loss are right, gradients are not."""

from fault import Fault, Run

MODEL = "examples/minigpt/model.cpp"

FAULTS = [
    Fault("attention_made_again_of_something_else", MODEL,
          [("{ return of(kept); }", "{ return of(kept * 0.5); }")],
          [Run("--mesh 1x1x1 --recompute selective", "step 1: gradient of block1.proj.weight")]),
    Fault("gelu_made_again_of_something_else", MODEL,
          [("{ return gelu(kept); }", "{ return gelu(kept * 0.5); }")],
          [Run("--mesh 1x1x2 --recompute selective", "step 1: gradient of block1.down.weight")]),
    Fault("input_kept_by_two_ranks_in_the_same_half", "parallel/tensor/tensor_parallel.cpp",
          [("narrow(0, tp.rank() * n, n)", "narrow(0, 0, n)")],
          [Run("--mesh 1x1x2 --recompute block-split", "step 1: gradient of block1.down.weight")]),
]
