"""Faults in how a model is fed, cut and added up.

The order in which parity looks (parallel/parity/compare.cpp): initial weights and moments as
declared; then per step activations forward, the loss, gradients from final_norm.beta back to
tokens.table, the norm, and weights and moments as declared, tokens.table first.
"""

from fault import INITIAL, Fault, Run

FEED, REPLICA = (f"parallel/train/{name}.cpp" for name in ("model/feed", "step/replica"))
MODEL = "examples/minigpt/model.cpp"
SEQUENCE = "--mesh 1x1x2 --sequence-parallel"

FAULTS = [
    Fault("order_of_samples_per_replica", FEED,
          [("order_(samples_->count(), seed)", "order_(samples_->count(), seed + uint64_t(place.replica))")],
          [Run("--mesh 2x1x1", "step 1: activation of embedding")]),
    Fault("replicas_see_the_same_samples", "parallel/train/model/feed.h",
          [("(micro * place_.replicas + place_.replica) *", "micro * place_.replicas *")],
          [Run("--mesh 2x1x1", "step 1: activation of embedding")]),
    Fault("serial_number_not_advanced_per_micro_batch", FEED,
          [("indices, position,", "indices, (step - 1) * place_.global_batch,")],
          [Run("--mesh 1x1x1", "step 1: activation of embedding")]),
    Fault("steps_overlap", FEED,
          # The reference has all of a step in one micro-batch.
          [("order_.at(position + i)",
            "order_.at(position - (step - 1) * (place_.global_batch - place_.micro_batch) + i)")],
          [Run("--mesh 2x1x1", "step 2: activation of embedding")]),
    Fault("step_weighed_by_this_replica_alone", FEED,
          [("i < place_.global_batch; ++i)\n    sum +=", "i < place_.global_batch / place_.replicas; ++i)\n    sum +=")],
          [Run("--mesh 2x1x1", "step 1: loss", "a factor of 2: summed once too often")]),
    Fault("loader_repeats_the_first_micro_batch", "parallel/train/model/feed.cpp",
          [("feed_.at(number / micros, number % micros)", "feed_.at(number / micros, 0)")],
          [Run("--mesh 2x1x1 --workers 2", "step 1: activation of embedding")]),

    Fault("tensor_parallel_ranks_see_other_batches", REPLICA,
          [("device = loss.device(), this](int micro)", "device = loss.device(), tp = tp_.rank(), micros, this](int micro)"),
           ("nn::to(options_.share(batches(micro), row_place_), device,", "nn::to(batches((micro + tp) % micros), device,")],
          [Run("--mesh 1x1x2", "step 1: activation on replicas of embedding")]),
    Fault("gradient_not_averaged_over_dp", REPLICA,
          [("run.seed = seed.loss_scale", "run.seed = double(options_.mesh.dp) * seed.loss_scale")],
          [Run("--mesh 2x1x1", "step 1: gradient of final_norm.beta",
               "a factor of 2: summed once too often, or not averaged, over dp"),
           Run("--mesh 4x1x2", "step 1: gradient of final_norm.beta", "a factor of 4")]),
    Fault("gradient_averaged_over_micro_batches_again", REPLICA,
          [("run.seed = seed.loss_scale", "run.seed = 1. / run.micros * seed.loss_scale")],
          [Run("--mesh 1x1x1", "step 1: gradient of final_norm.beta", "a factor of about 0.25:"),
           Run("--mesh 2x1x1", "step 1: gradient of final_norm.beta",
               "a factor of 1/2: averaged once too often, or not summed, over dp")]),
    Fault("loss_of_every_tensor_parallel_rank", "parallel/train/step/step.cpp",
          [("  if (shape.place(mesh.world().rank(), shape.along(Cuts::features)) > 0) fill_(loss, 0);\n", "  (void)shape, (void)loss;\n")],
          [Run("--mesh 1x1x2", "step 1: loss", "a factor of 2: summed once too often")]),
    Fault("loss_of_the_last_micro_batch_only", REPLICA,
          [("backend(sum).accumulate(more, sum);", "copy_(sum, more);")],
          [Run("--mesh 1x1x1", "step 1: loss", "a part of the sum is missing")]),

    Fault("norm_that_sees_its_own_rows_not_marked", "parallel/tensor/norm.h",
          [("nn::LayerNorm(width, nn::NormOptions{.shard = tp.whole()}) {}",
            "nn::LayerNorm(width, nn::NormOptions{}) { (void)tp; }")],
          # The probe refuses it before training.
          [Run(SEQUENCE, r"exit status 78: .*block0\.norm1\.gamma[\s\S]*")]),
    Fault("positions_of_the_first_ranks_rows", MODEL,
          [("rows = tp_.rows(batch.input.numel()), row = tp_.first_row(rows);",
            "rows = tp_.rows(batch.input.numel()), row = 0;")],
          [Run(SEQUENCE + " --micro-batch 1", "step 1: activation of embedding")]),
    Fault("dropout_mask_of_the_first_ranks_rows", "parallel/tensor/dropout.cpp",
          [("samples == 1 ? tp_.first_row(share)", "samples == 1 ? 0")],
          [Run(SEQUENCE, "step 1: activation of embedding")]),
    Fault("dropout_mask_of_the_first_ranks_heads", MODEL,
          [("serial_of_row(batch, time), tp_.rank() * heads_ * time)", "serial_of_row(batch, time), 0)")],
          [Run("--mesh 1x1x2", "step 1: activation of block0")]),
    Fault("dropout_mask_of_attention_by_outer_rows", MODEL,
          [("attention_drop_.mask(nn::serial_of_row(batch, time),",
            "attention_drop_.mask(nn::serial_of_row(batch, time, tp_.first_row(x.size(0))),")],
          [Run(SEQUENCE, "step 1: activation of block0")]),

    Fault("shards_initialised_alike", "nn/parameter.cpp",
          [("whole * inner + shard.begin * inner + at % run", "whole * inner + at % run")],
          [Run("--mesh 1x1x2", f"{INITIAL}: weight of tokens.table")]),
    Fault("columns_cut_as_rows", "nn/parameter.cpp",
          [("at / run * whole * inner + shard.begin * inner + at % run", "shard.begin * inner + at")],
          [Run("--mesh 1x1x2", f"{INITIAL}: weight of block0.proj.weight")]),
]
