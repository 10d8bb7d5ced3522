"""Faults of data parallelism, ZeRO, the gradient norm and tied weights."""

from fault import INITIAL, Fault, Run, Unseen

DATA, BUCKET_SUM = "parallel/data/data_parallel.cpp", "parallel/comm/movement.cpp"
BUCKETS, NORM = "parallel/data/buckets.cpp", "parallel/data/norm.cpp"
SHARDED, SLOTS = "parallel/data/sharded_parameters.cpp", "parallel/data/slots.cpp"
STEP = "parallel/train/step.cpp"
VOTE = "mesh_.world().all_reduce(totals_).wait();"  # {loss, squares, non-finite}
VOTE_IN = ("mesh_.world().all_reduce(totals_.narrow(0, 0, 1)).wait();\n"
           "  mesh_.%s().all_reduce(totals_.narrow(0, 1, 2)).wait();")
SEQUENCE = "--mesh 1x1x2 --sequence-parallel"

FAULTS = [
    Fault("gradients_not_summed_over_dp", DATA,
          [("b.reducing = dp_.all_reduce(b.grad);", "")],
          [Run("--mesh 2x1x1", "step 1: gradient on replicas of final_norm.beta"),
           Run("--mesh 2x2x2", "step 1: gradient on replicas of final_norm.beta")]),
    Fault("bucket_fires_at_its_first_parameter", DATA,
          [("bucket->complete() > bucket->reductions", "bucket->fired[piece] > bucket->reductions")],
          [Run("--mesh 2x1x1 --zero 2", "step 1: gradient of block1.down.bias")]),
    Fault("last_micro_batch_only", DATA,
          [("++bucket->fired[piece];",
            "if (++bucket->fired[piece] < bucket->due && !releases_gradients())\n"
            "      set_fresh(bucket->layout.pieces[piece].parameter->value);")],
          [Run("--mesh 1x1x1", "step 1: gradient of final_norm.beta", "a part of the sum is missing"),
           Run("--mesh 2x1x1 --zero 1", "step 1: gradient of final_norm.beta",
               "a part of the sum is missing")]),
    Fault("last_arriving_gradient_only", SHARDED,
          [("else backend(b.my_grad).accumulate(arrived, b.my_grad);", "else copy_(b.my_grad, arrived);")],
          [Run("--mesh 2x1x1 --zero 2", "step 1: gradient of final_norm.beta",
               "a part of the sum is missing")]),
    Fault("arriving_gradients_not_added", DATA,
          [("if (b.arriving.defined()) add_arrived(b);", "")],
          [Run("--mesh 2x1x1 --zero 3", "step 1: gradient of final_norm.beta",
               "a part of the sum is missing")]),
    Fault("first_offloaded_micro_batch_lost", SHARDED,
          [("bool first = b.reductions == 1;", "bool first = b.reductions <= 2;")],
          [Run("--mesh 2x1x1 --zero 3 --offload params --micro-batch 1", "step 1: gradient of final_norm.beta",
               "a part of the sum is missing")]),
    Fault("offloaded_weights_not_written_back", "optim/adamw.cpp",
          [("c.part.weight.storage()->hold(Access::write);", "c.part.weight.storage()->hold(Access::read);")],
          [Run("--mesh 1x1x1 --zero 3 --offload params --offload-dir .", "step 1: weight of tokens.table")]),
    Fault("first_micro_batch_lost", DATA,
          [("if (b.reductions > 1) b.arriving", "if (b.reductions > 2) b.arriving")],
          [Run("--mesh 2x1x1 --zero 2 --micro-batch 1", "step 1: gradient of final_norm.beta",
               "a part of the sum is missing")]),
    Fault("gradients_not_cleared_before_the_step", DATA,
          # Without ZeRO, also on the one rank: only stages that empty their buckets differ from it.
          [("std::fill(b->fired.begin(), b->fired.end(), 0);\n"
            "    for (auto& piece : b->layout.pieces) set_fresh(piece.parameter->value);",
            "std::fill(b->fired.begin(), b->fired.end(), 0);")],
          [Run("--mesh 2x1x1 --zero 2", "step 2: gradient of final_norm.beta")]),
    Fault("slice_of_a_bucket_begins_too_early", DATA,
          [("? 0 : dp_.rank() * slice;", "? 0 : dp_.rank() * (slice - 16);")],
          [Run("--mesh 2x1x1 --zero 2", f"{INITIAL}: moment of tokens.table/m")]),
    Fault("every_rank_starts_with_the_first_slice", DATA,
          [("b->my_weight = b->weight.narrow(0, b->my_first, slice);",
            "b->my_weight = b->weight.narrow(0, 0, slice);")],
          [Run("--mesh 2x1x1 --zero 3", f"{INITIAL}: weight of tokens.table")]),
    Fault("replicas_start_differently", DATA,
          [("model.bind(options_.seed);", "model.bind(options_.seed + uint64_t(dp_.rank()));")],
          [Run("--mesh 2x1x1", f"{INITIAL}: weight on replicas of tokens.table")]),
    Fault("weights_not_published", DATA,
          [("if (options_.zero != Zero::optimizer && options_.zero != Zero::gradients) return;",
            "if (options_.zero != Zero::optimizer) return;")],
          [Run("--mesh 2x1x1 --zero 2", "step 1: weight on replicas of tokens.table"),
           Run("--mesh 2x2x2 --zero 2", "step 1: weight on replicas of tokens.table")]),
    Fault("optimizer_updates_a_stale_copy", SLOTS,
          [(".weight = part(b->my_weight),",
            ".weight = part(options_.zero == Zero::parameters ? clone(b->my_weight) : b->my_weight),")],
          [Run("--mesh 2x1x1 --zero 3", "step 1: weight of tokens.table")]),
    Fault("stale_tied_copy", SLOTS,
          [("  for (auto& [b, range, rates] : slots_) {\n",
            "  for (auto& [b, range, rates] : slots_) {\n"
            "    if (b->layout.pieces[0].parameter->tied && groups_.ends && groups_.ends->rank() > 0) continue;\n")],
          [Run("--mesh 1x2x1", "step 1: weight on replicas of tokens.table"),
           Run("--mesh 2x2x2 --zero 1", "step 1: weight on replicas of tokens.table")]),
    Fault("decay_of_everything_in_a_slice", SLOTS,
          # Matrices come first, and biases are zero: the first gamma is the first that shows.
          [("[](const nn::Parameter& p) { return p.weight_decay || p.decay; }",
            "[this](const nn::Parameter& p) { return options_.zero != Zero::off || p.decay; }")],
          [Run("--mesh 2x1x1 --zero 1", "step 1: weight of block0.norm1.gamma")]),
    Fault("partial_gradients_not_summed", DATA,
          [("  sum_partial();\n  for", "  for")],
          [Run(SEQUENCE, "step 1: gradient on replicas of final_norm.beta")]),
    Fault("tied_ends_not_summed", DATA,
          [("groups_.ends->all_reduce(grad).wait();", "{}")],
          [Run("--mesh 1x2x1", "step 1: gradient on replicas of tokens.table"),
           Run("--mesh 2x2x1 --zero 2", "step 1: gradient on replicas of tokens.table")]),
    Fault("tied_copy_counted_twice_in_the_norm", DATA,
          [("bool copy = p.tied && groups_.ends && groups_.ends->rank() > 0;", "bool copy = false;")],
          [Run("--mesh 1x2x1", "step 1: gradient norm", "a factor of about 1.")]),
    Fault("norm_of_this_ranks_slice", STEP,
          [(VOTE, VOTE_IN % "pp")],
          [Run("--mesh 2x1x1 --zero 1", "step 1: gradient norm on replicas")]),
    Fault("norm_of_all_replicas", DATA,
          [("p.shard.first_replica && (options_.zero != Zero::off || dp_.rank() == 0);",
            "p.shard.first_replica;")],
          [Run("--mesh 2x1x1", "step 1: gradient norm", "a factor of about 1.41")]),
    Fault("norm_of_this_stage", STEP,
          [(VOTE, VOTE_IN % "dp")],
          [Run("--mesh 1x2x1", "step 1: gradient norm on replicas")]),

    Fault("tied_weight_without_a_bucket_of_its_own", BUCKETS,
          [("(p->tied || passes(p, chunks) > 1 ? shared", "(passes(p, chunks) > 1 ? shared")],
          # On the first stage it is not the first of its bucket: only the last waits for the sum.
          [Run("--mesh 2x2x1 --zero 1", r"exit status 72: .*no progress in group (ends|world) [\s\S]*")]),

    Fault("gathered_ahead_and_not_awaited", SHARDED,
          # What the memory held before: on the first step that can be the right weights.
          [("  start_gather(b);\n  b.gathering.wait();",
            "  bool ahead = b.weight.storage()->present();\n  start_gather(b);\n"
            "  if (!ahead) b.gathering.wait();")],
          [Run("--mesh 2x1x1 --zero 3", "step [12]: activation (on replicas )?of block0")]),

    Fault("last_rank_left_out_of_sums", BUCKET_SUM,
          [("for (size_t p = 2; p < from.size(); ++p) {", "for (size_t p = 2; p + 1 < from.size(); ++p) {")],
          [Run("--mesh 4x1x1", "step 1: loss", "a part of the sum is missing")]),
]

UNSEEN = [
    Unseen("unused_parameter_keeps_its_last_gradient", DATA,
           [("    if (is_fresh(p->value)) clear(begin, end);\n", "")],
           "every parameter of the GPT is used in every micro-batch",
           "--mesh 2x1x1", "test_parallel", "DataParallelTest.AnyNumber*"),
    Unseen("bucket_with_an_unused_parameter_not_reduced", DATA,
           [("    while (b->reductions < (releases_gradients() ? b->due : 1)) reduce(*b);\n", "    {}\n")],
           "every parameter of the GPT is used in every micro-batch",
           "--mesh 2x1x1", "test_parallel", "DataParallelTest.OneRankWithoutData*"),
    Unseen("gradients_all_reduced_where_a_slice_is_used", DATA,
           [("dp_.reduce_scatter(b.grad, b.my_grad);", "dp_.all_reduce(b.grad);")],
           "what is sent too much is right",
           "--mesh 2x1x1 --zero 1", "test_examples", "Sharding.Sends*"),
    Unseen("low_precision_weights_not_published", DATA,
           [("if (options_.zero != Zero::optimizer && options_.zero != Zero::gradients) return;",
             "if ((options_.zero != Zero::optimizer && options_.zero != Zero::gradients) ||\n"
             "      options_.dtype != f32)\n    return;")],
           "parity runs in fp32",
           "--mesh 2x1x1 --zero 1", "test_examples", "Parity.RandomCombinations"),
    Unseen("decay_reaches_over_a_small_parameter", DATA,
           [("joins = counts;", "joins = counts || (joins && r.end - r.begin <= 16);")],
           "no parameter of a run is that small",
           "--mesh 2x1x1 --zero 2", "test_parallel", "OddParameters.*"),
    Unseen("buckets_that_ranks_do_not_divide", BUCKETS,
           [("b.length = round_up(b.length, align * ranks);", "b.length = round_up(b.length, align);")],
           "two ranks divide every bucket",
           "--mesh 2x1x1 --zero 2", "test_parallel", "OddParameters.*"),
    Unseen("skipping_is_this_ranks_own_decision", NORM,
           [("  groups_.all->all_reduce(both).wait();\n  return norm_of(both.to_host<double>());",
             "  double own = both.to_host<double>()[1];\n"
             "  groups_.all->all_reduce(both).wait();\n"
             "  auto sums = both.to_host<double>();\n"
             "  sums[1] = own;\n"
             "  return norm_of(sums);")],
           "no gradient of a run is infinite",
           "--mesh 1x1x2", "test_examples", "SkippedStep.*"),
    Unseen("overflow_of_copies_has_no_vote", NORM,
           [("  backend(sums).accumulate(rest.narrow(0, 1, 1), sums.narrow(0, 1, 1));\n", "")],
           "no gradient of a run is infinite",
           "--mesh 1x2x2", "test_examples", "NonFinite.*"),
    Unseen("decay_of_everything", SLOTS,
           [("[](const nn::Parameter& p) { return p.weight_decay || p.decay; }", "[](const nn::Parameter&) { return true; }")],
           "one rank decays everything too",
           "--mesh 2x1x1 --zero 1", "test_examples", "*PyTorch*"),
    Unseen("sums_of_gradients_start_after_backward", DATA,
           [("    if (!releases_gradients()) launch_full();\n"
             "    else if (bucket->complete() > bucket->reductions) reduce(*bucket);\n", "")],
           "what is late is right",
           "--mesh 2x1x1", "test_parallel", "OverlapTest.AStep*"),
    Unseen("weights_not_gathered_ahead", SHARDED,
           [("bool ahead = options_.prefetch == DataParallelOptions::Prefetch::next;", "bool ahead = false;")],
           "what is late is right",
           "--mesh 2x1x1 --zero 3", "test_parallel", "OverlapTest.Weights*"),
]
