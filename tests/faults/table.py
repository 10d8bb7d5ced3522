"""All faults, the flags of every run of a program, and meshes on which parity must find nothing."""

import batch_norm
import comm
import context
import data
import experts
import llama
import minigpt
import ops
import pipeline
import recompute
import tensor
import training

# Small, and a text of 13 symbols, which no even number of ranks divides.
SIZES = "--steps 2 --layers 2 --heads 4 --width 32 --context 8 --micro-batch 2 --global-batch 8 --weight-decay 0.5"
FLAGS = {"minigpt": SIZES + " --dropout 0.1", "llama": SIZES + " --kv-heads 2 --hidden 24"}
TEXT = "".join(chr(ord("a") + (i * i // 3 + i // 5) % 13) for i in range(600))

# Faults of one file stand together, so that few files are compiled again for each.
FAULTS = (ops.FAULTS + minigpt.FAULTS + recompute.FAULTS + tensor.FAULTS + data.FAULTS
          + pipeline.FAULTS + training.FAULTS + llama.FAULTS + context.FAULTS + experts.FAULTS)
UNSEEN = (ops.UNSEEN + training.UNSEEN + tensor.UNSEEN + data.UNSEEN + pipeline.UNSEEN
          + batch_norm.UNSEEN + comm.UNSEEN + llama.UNSEEN)

MESHES = [
    "--mesh 2x2x1 --zero 2 --schedule zb-h1 --bitwise --micro-batch 1 --precision bf16",
    "--mesh 1x2x2 --zero 1 --bitwise --tp-slices 2 --micro-batch 1",
    "--mesh 2x2x2 --zero 2 --bitwise --tp-slices 4 --sequence-parallel --micro-batch 4",
    "--mesh 1x2x2 --bitwise --tp-slices 4 --sequence-parallel --micro-batch 4 --context 64 --recompute block",
    "--mesh 1x1x1", "--mesh 1x1x1 --schedule zb-h1 --micro-batch 1",
    "--mesh 2x1x1", "--mesh 4x1x1 --zero 1", "--mesh 2x1x1 --zero 2 --micro-batch 1",
    "--mesh 4x1x1 --zero 3", "--mesh 3x1x1 --zero 3 --global-batch 12",
    "--mesh 1x1x2", "--mesh 1x1x4 --sequence-parallel", "--mesh 1x1x2 --sequence-parallel --micro-batch 1",
    "--mesh 1x2x1", "--mesh 1x2x1 --schedule gpipe", "--mesh 1x4x1 --layers 4 --schedule zb-h1",
    "--mesh 1x2x1 --layers 4 --schedule interleaved", "--mesh 2x1x1 --layers 4 --schedule zb-interleaved",
    "--mesh 1x2x1 --layers 3 --placement 3,0",
    "--mesh 2x2x1 --zero 1", "--mesh 2x2x1 --zero 3 --schedule zb-h1", "--mesh 2x1x2 --zero 2",
    "--mesh 2x1x2 --zero 3 --sequence-parallel", "--mesh 1x2x2 --sequence-parallel",
    "--mesh 1x1x2 --tp-pieces 4", "--mesh 2x1x2 --tp-pieces 3 --sequence-parallel --micro-batch 4 --recompute block",
    "--mesh 1x1x2x1", "--mesh 1x1x4x1 --cp-form gather --micro-batch 1", "--mesh 2x1x2x1 --cp-form heads --zero 3",
    "--mesh 1x2x2x2 --sequence-parallel", "--mesh 1x1x2x2 --cp-form heads --bitwise --row-parts 4 --tp-slices 2",
    "--mesh 2x2x2", "--mesh 2x2x2 --zero 3 --sequence-parallel",
    "--mesh 2x2x2 --zero 2 --sequence-parallel --layers 4 --schedule zb-interleaved",
    "--mesh 2x2x1 --zero 2 --schedule gpipe --recompute block",
    "--mesh 2x2x2 --zero 1 --label-smoothing 0.2",
    "--mesh 2x2x2 --bitwise --tp-slices 4 --micro-batch 4 --label-smoothing 0.2",
    "--mesh 2x2x2 --zero 3 --schedule zb-h1 --recompute block-split",
    "--mesh 2x2x2 --zero 3 --sequence-parallel --recompute selective",
]
