"""Faults of tensor and sequence parallelism. The text has 13 symbols: two ranks hold 7 rows of the
table and 6 with one of padding."""

from fault import INITIAL, Fault, Run, Unseen

LOSS = "core/cpu/cross_entropy.cpp"
TARGETS = "core/indices.h"
TENSOR, LINEAR, EMBEDDING, SLICES = (f"parallel/tensor/{name}" for name in
                                     ("tensor_parallel.cpp", "linear.h", "embedding.h", "slices.cpp"))
PLAIN, SEQUENCE = "--mesh 1x1x2", "--mesh 1x1x2 --sequence-parallel"
# What the probe says before the first step.
WHOLE = r"exit status 78: .*parameter %s: all 2 tensor-parallel ranks hold the whole of it[\s\S]*"

FAULTS = [
    Fault("padding_of_the_vocabulary_in_the_softmax", TARGETS,
          [("int64_t valid = known < 0 ? 0 : known < columns ? known : columns;",
            "int64_t valid = columns; (void)known;")],
          [Run(PLAIN, "step 1: loss")]),
    Fault("padding_of_the_vocabulary_gets_a_gradient", LOSS,
          [("int64_t valid = s.ignored(r) ? 0 : s.valid,", "int64_t valid = s.ignored(r) ? 0 : s.columns,")],
          [Run(PLAIN, "step 1: gradient norm")]),
    Fault("targets_not_shifted_to_the_slice", TARGETS,
          [("int64_t c = ids[r] - first;", "int64_t c = ids[r];")],
          [Run(PLAIN, "step 1: loss")]),

    # Within the bounds of parity: only bits tell.
    Fault("sums_of_slices_rounded_before_ranks_add_them", SLICES,
          [("if (size() > 1) tp_->all_reduce(parts).wait();",
            "if (size() > 1) tp_->all_reduce(parts = parts.to(f32)).wait();")],
          [Run("--mesh 1x1x2 --bitwise --tp-slices 4 --micro-batch 1", "step 1: (activation|gradient) of .*")]),
    Fault("statistics_of_the_ranks_slice_alone", EMBEDDING,
          [("o.parts = tp_.slices_here();", "o.parts = 1;")],
          [Run("--mesh 1x1x2 --bitwise --tp-slices 2 --micro-batch 1", "step 1: (loss|gradient of .*)")]),
    Fault("enter_without_sum_in_backward", TENSOR,
          [(": tp.summed(parts);", ": parts;")],
          [Run(PLAIN, "step 1: gradient on replicas of final_norm.beta"),
           Run("--mesh 2x2x2 --zero 3", "step 1: gradient on replicas of final_norm.beta")]),
    Fault("enter_takes_its_own_part_in_backward", TENSOR,
          [("? tp.sum_scattered(parts)", "? tp.mine(parts)")],
          [Run(SEQUENCE, "step 1: gradient of final_norm.beta")]),
    Fault("other_rows_gathered_again", TENSOR,
          [("return tp.gathered(mine); });", "return tp.gathered(mine * 0.5); });")],
          [Run(SEQUENCE, "step 1: gradient of block1.up.weight", "a factor of 1/2")]),
    Fault("leave_without_sum", TENSOR,
          [("  if (!sequence_) tp_->all_reduce(y).wait();\n", "")],
          [Run(PLAIN, "step 1: activation on replicas of embedding"),
           Run("--mesh 2x2x2 --zero 3", "step 1: activation on replicas of embedding")]),
    Fault("leave_sums_in_backward_too", TENSOR,
          [("tp.gathered(dy) : dy};", "tp.gathered(dy) : tp.summed(dy)};")],
          [Run(PLAIN, "step 1: gradient of block1.down.weight",
               "a factor of 2: summed once too often, or not averaged, over tp"),
           Run("--mesh 2x2x2", "step 1: gradient of block1.down.weight",
               "not averaged, over dp or tp or pp")]),
    Fault("combine_without_rescaling", TENSOR,
          [("exps * exp(largest - top)", "exps")],
          [Run(PLAIN, "step 1: loss")]),
    Fault("slices_of_features_overlap", TENSOR,
          [(".begin = rank() * each, .length = each}", ".begin = rank() * each / 2, .length = each}")],
          [Run(PLAIN, f"{INITIAL}: weight of block0.qkv.weight")]),
    Fault("slices_of_the_vocabulary_overlap", TENSOR,
          [("std::min(rows, rank() * each), length", "std::min(rows, rank() * (each - 1)), length")],
          # Rows 0 to 6 and 6 to 12: all there, and alike; but token 6 is looked up twice.
          [Run(PLAIN, "step 1: activation of embedding")]),
    Fault("replicas_counted_twice_in_the_norm", TENSOR,
          [(", .first_replica = rank() == 0};", "};")],
          [Run(PLAIN, "step 1: gradient norm", "a factor of about 1."),
           Run("--mesh 2x2x2 --zero 2", "step 1: gradient norm", "a factor of about 1.")]),
    Fault("no_gradient_is_partial", TENSOR,
          [(".partial = sequence_,", ".partial = false,")],
          [Run(SEQUENCE, WHOLE % "positions.table")]),

    Fault("bias_added_by_every_rank", TENSOR,
          [("linear_in(dtype_of_sums(x.dtype()), x, weight), bias, x.dtype())", "linear(x, weight, bias), {}, x.dtype())")],
          # Biases start at zero: the first step is right but for the sum over rows.
          [Run(PLAIN, "step 2: activation of block0"),
           Run(SEQUENCE, "step 1: gradient of block1.down.bias", "a factor of 2: summed once too often")]),
    Fault("gelu_without_enter", LINEAR,
          [("return nn::Linear::gelu(all);", "return nn::Linear::gelu(x);")],
          [Run(PLAIN, "step 1: gradient on replicas of block1.norm2.beta")]),
    Fault("bias_of_a_row_linear_not_marked", LINEAR,
          [('{.name = "bias", .full = {out}, .shard = tp.whole()}', '{.name = "bias", .full = {out}}')],
          [Run(SEQUENCE, WHOLE % "block0.proj.bias")]),

    Fault("tokens_not_shifted_to_the_slice", EMBEDDING,
          [(".first = tp.vocabulary(vocabulary).begin,", ".first = 0 * tp.vocabulary(vocabulary).begin,")],
          [Run(PLAIN, "step 1: activation of embedding")]),
    Fault("softmax_over_each_slice_alone", EMBEDDING,
          [("{ return tp.combine(stats); }", "{ (void)tp; return stats.view({stats.size(1), 4}); }")],
          [Run(PLAIN, "step 1: loss")]),
]

UNSEEN = [
    Unseen("ignored_targets_in_the_loss", LOSS,
           [("out[r] = s.ignored(r) ? A(0) : loss;", "out[r] = loss;")],
           "no target of a run is ignored",
           PLAIN, "test_examples", "RaggedTargets.*"),
    Unseen("label_smoothing_over_a_slice", LOSS,
           [("smooth * (lse - p[3] / vocab)", "smooth * (lse - p[3] / A(s.columns))"),
            ("A smooth = A(c.smoothing), vocab = A(c.vocab);", "A smooth = A(c.smoothing);")],
           "no run smooths labels",
           PLAIN, "test_parallel", "TensorParallelTest.LayersAddUp*"),
    Unseen("heads_that_ranks_do_not_divide", "examples/minigpt/model.cpp",
           [("if (c.heads % tp.size() == 0) return", "if (c.heads >= tp.size()) return")],
           "the heads of a run are divided",
           PLAIN, "test_examples", "Validate.RefusesAMeshThatDoesNotFit*"),
    Unseen("parts_of_a_sum_rounded_to_fp16", TENSOR,
           [("return values == f16 ? accumulator(values) : values;", "return values;")],
           "no part of a run's sums overflows where the sum does not",
           PLAIN + " --precision fp16", "test_parallel", "HalfSums.*"),
    Unseen("gathered_rows_kept", TENSOR,
           [("  if (!sequence_) return y;\n", "  return y;\n")],
           "what is kept is right",
           SEQUENCE, "test_parallel", "TensorParallelTest.ProductsKeep*"),
    Unseen("gradients_inside_a_stretch_not_summed", TENSOR,
           [("  shard.partial = shard.replicated;\n", "")],
           "minigpt has no whole parameter inside a split stretch",
           PLAIN, "test_parallel", "AnyModelParity.WholeParameters*"),
]
