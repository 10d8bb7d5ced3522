"""Faults in how minigpt feeds, cuts and adds up.

The order in which parity looks (examples/minigpt/compare.cpp): initial weights and moments as
declared; then per step activations forward, the loss, gradients from final_norm.beta back to
tokens.table, the norm, and weights and moments as declared, tokens.table first.
"""

from fault import INITIAL, Fault, Run

FEED, REPLICA, MODEL = (f"examples/minigpt/{name}.cpp" for name in ("feed", "replica", "model"))
SEQUENCE = "--mesh 1x1x2 --sequence-parallel"

FAULTS = [
    Fault("order_of_samples_per_replica", FEED,
          [("uint64_t(c.seed)) {}", "uint64_t(c.seed + dp.rank())) {}")],
          [Run("--mesh 2x1x1", "step 1: activation of embedding")]),
    Fault("replicas_see_the_same_samples", FEED,
          [("(micro * dp_.size() + dp_.rank()) *", "micro * dp_.size() *")],
          [Run("--mesh 2x1x1", "step 1: activation of embedding")]),
    Fault("serial_number_not_advanced_per_micro_batch", FEED,
          [("batch.first = position *", "batch.first = (step - 1) * config_.global_batch *")],
          [Run("--mesh 1x1x1", "step 1: activation of embedding")]),

    Fault("tensor_parallel_ranks_see_other_batches", REPLICA,
          [("[&batch, device = pp_.device()](int m)", "[&batch, device = pp_.device(), tp = tp_.rank(), micros](int m)"),
           ("nn::Batch b = batch(m);", "nn::Batch b = batch((m + tp) % micros);")],
          [Run("--mesh 1x1x2", "step 1: activation on replicas of embedding")]),
    Fault("gradient_not_averaged_over_dp", REPLICA,
          [("run.seed = seed;", "run.seed = seed * double(config_.mesh.dp);")],
          [Run("--mesh 2x1x1", "step 1: gradient of final_norm.beta",
               "a factor of 2: summed once too often, or not averaged, over dp"),
           Run("--mesh 4x1x2", "step 1: gradient of final_norm.beta", "a factor of 4")]),
    Fault("gradient_averaged_over_micro_batches_again", REPLICA,
          [("run.seed = seed;", "run.seed = seed / run.micros;")],
          [Run("--mesh 1x1x1", "step 1: gradient of final_norm.beta", "a factor of about 0.25:"),
           Run("--mesh 2x1x1", "step 1: gradient of final_norm.beta",
               "a factor of 1/2: averaged once too often, or not summed, over dp")]),
    Fault("loss_of_every_tensor_parallel_rank", REPLICA,
          [("if (tp_.rank() == 0) backend(loss)", "backend(loss)")],
          [Run("--mesh 1x1x2", "step 1: loss", "a factor of 2: summed once too often")]),
    Fault("loss_of_the_last_micro_batch_only", REPLICA,
          [("backend(loss).accumulate(sum.detach().view({1}), loss);",
            "copy_(loss, sum.detach().view({1}));")],
          [Run("--mesh 1x1x1", "step 1: loss", "a part of the sum is missing")]),

    Fault("norm_that_sees_its_own_rows_not_marked", MODEL,
          [('"norm2", c.width, nn::NormOptions{.shard = tp.whole()}', '"norm2", c.width')],
          [Run(SEQUENCE, "step 1: gradient on replicas of block1.norm2.beta")]),
    Fault("positions_of_the_first_ranks_rows", MODEL,
          [("rows = tp_.rows(batch.ids.numel()), first = tp_.first_row(rows);",
            "rows = tp_.rows(batch.ids.numel()), first = 0;")],
          [Run(SEQUENCE + " --micro-batch 1", "step 1: activation of embedding")]),
    Fault("dropout_mask_of_the_first_ranks_rows", MODEL,
          [("batch.first + tp.first_row(rows);", "batch.first + 0 * tp.first_row(rows);")],
          [Run(SEQUENCE, "step 1: activation of embedding")]),
    Fault("dropout_mask_of_the_first_ranks_heads", MODEL,
          [("attention_drop_.mask(batch.first, tp_.rank() * heads_ * batch.time)",
            "attention_drop_.mask(batch.first, 0)")],
          [Run("--mesh 1x1x2", "step 1: activation of block0")]),
    Fault("dropout_mask_of_attention_by_outer_rows", MODEL,
          [("attention_drop_.mask(batch.first,", "attention_drop_.mask(first_token(tp_, batch, x.size(0)),")],
          [Run(SEQUENCE, "step 1: activation of block0")]),

    Fault("shards_initialised_alike", "nn/parameter.cpp",
          [("whole * inner + shard.begin * inner + at % run", "whole * inner + at % run")],
          [Run("--mesh 1x1x2", f"{INITIAL}: weight of tokens.table")]),
    Fault("columns_cut_as_rows", "nn/parameter.cpp",
          [("at / run * whole * inner + shard.begin * inner + at % run", "shard.begin * inner + at")],
          [Run("--mesh 1x1x2", f"{INITIAL}: weight of block0.proj.weight")]),
]
