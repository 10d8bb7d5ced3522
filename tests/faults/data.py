"""Faults of data parallelism, ZeRO, the gradient norm and tied weights."""

from fault import INITIAL, Fault, Run, Unseen

DATA, SLOTS_OF_ALL = "parallel/data/data_parallel.cpp", "parallel/data/data_parallel.h"
SUMS, BUCKET_SUM = "parallel/data/buckets/gradient_sums.cpp", "parallel/comm/movement.cpp"
BUCKETS, NORM = "parallel/data/buckets/buckets.cpp", "parallel/data/gradient_norm.cpp"
HELD, SLOTS = "parallel/data/buckets/held_model.cpp", "parallel/data/buckets/update_slots.cpp"
GATHERED, SLICES = "parallel/data/buckets/gathered_weights.cpp", "parallel/data/buckets/slice_store.cpp"
STEP = "parallel/train/step/step.cpp"
VOTE = "mesh_.world().all_reduce(sums).wait();"  # {loss, squares, non-finite}
VOTE_IN = ("mesh_.world().all_reduce(sums.narrow(0, 0, 1)).wait();\n"
           "  mesh_.%s().all_reduce(sums.narrow(0, 1, 2)).wait();")
SEQUENCE = "--mesh 1x1x2 --sequence-parallel"

FAULTS = [
    Fault("gradients_not_summed_over_dp", SUMS,
          [(": b.over->all_reduce(b.sending);", ": Work();")],
          [Run("--mesh 2x1x1", "step 1: gradient on replicas of final_norm.beta"),
           Run("--mesh 2x2x2", "step 1: gradient on replicas of final_norm.beta")]),
    # Within the bounds of parity: only bits tell.
    Fault("sums_of_a_rank_rounded_before_they_are_added", SUMS,
          [("const Tensor& sum = ", "copy_(b.sending, b.sending.to(f32));\n  const Tensor& sum = ")],
          [Run("--mesh 2x1x1 --bitwise --micro-batch 1", "step 1: gradient of .*")]),
    Fault("losses_of_a_micro_batch_added_in_f32", "parallel/train/step/replica.cpp",
          [("for (double loss : more.to(f64).to_host<double>()) WideSum::add(loss, words.data());",
            "float all = 0;\n    for (double loss : more.to(f64).to_host<double>()) all += float(loss);\n"
            "    WideSum::add(all, words.data());")],
          [Run("--mesh 1x1x1 --bitwise --micro-batch 4", "step 1: loss")]),
    Fault("sample_takes_the_serial_number_of_the_first", "parallel/train/model/by_sample.cpp",
          [("one.first += i;", "one.first += 0;")],
          [Run("--mesh 1x1x1 --bitwise", "step 1: activation of embedding")]),
    Fault("samples_at_once_rounded_together", "parallel/data/buckets/exact_gradients.cpp",
          [("return n.samples * (", "return 1 * (")],
          [Run("--mesh 1x1x1 --bitwise --context 32", "step 1: gradient of .*")]),
    Fault("samples_at_once_recomputed_as_one", "autograd/engine.cpp",
          [("SamplesAtOnce as_recorded(n.samples);", "")],
          [Run("--mesh 1x1x1 --bitwise --context 32 --recompute block", "step 1: gradient of .*")]),
    Fault("squares_in_the_order_of_elements", "core/cpu/fixed_point.cpp",
          [("rest[i] = fits ? square : 0;", "sums[0][i] += fits ? square : 0;")],
          # In two steps the sums may round alike.
          [Run("--mesh 2x2x1 --zero 1 --bitwise --micro-batch 1 --steps 6", "step [1-6]: gradient norm")]),
    Fault("bucket_fires_at_its_first_parameter", SUMS,
          [("bucket->complete > bucket->reductions", "bucket->fired[piece] > bucket->reductions")],
          [Run("--mesh 2x1x1 --zero 2", "step 1: gradient of block1.down.bias")]),
    Fault("last_micro_batch_only", SUMS,
          [("bucket->fire(piece);",
            "bucket->fire(piece);\n    if (bucket->fired[piece] < bucket->due && !rule_.each_pass)\n"
            "      bucket->views[piece]->set_fresh();")],
          [Run("--mesh 1x1x1", "step 1: gradient of final_norm.beta", "a part of the sum is missing"),
           Run("--mesh 2x1x1 --zero 1", "step 1: gradient of final_norm.beta",
               "a part of the sum is missing")]),
    Fault("last_arriving_gradient_only", SLICES,
          [("else backend(b.my_sums).accumulate(arrived, b.my_sums);", "else copy_(b.my_sums, arrived);")],
          [Run("--mesh 2x1x1 --zero 2", "step 1: gradient of final_norm.beta",
               "a part of the sum is missing")]),
    Fault("arriving_gradients_not_added", SUMS,
          [("if (b.arriving.defined()) slices_.add_arrived(b);", "")],
          [Run("--mesh 2x1x1 --zero 3", "step 1: gradient of final_norm.beta",
               "a part of the sum is missing")]),
    Fault("first_offloaded_micro_batch_lost", SLICES,
          [("bool first = b.reductions == 1;", "bool first = b.reductions <= 2;")],
          [Run("--mesh 2x1x1 --zero 3 --offload params --micro-batch 1", "step 1: gradient of final_norm.beta",
               "a part of the sum is missing")]),
    Fault("offloaded_weights_not_written_back", "optim/adamw.cpp",
          [("c.part.weight.storage()->hold(Access::write);", "c.part.weight.storage()->hold(Access::read);")],
          [Run("--mesh 1x1x1 --zero 3 --offload params --offload-dir .", "step 1: weight of tokens.table")]),
    Fault("first_micro_batch_lost", SUMS,
          [("if (b.reductions > 1) b.arriving", "if (b.reductions > 2) b.arriving")],
          [Run("--mesh 2x1x1 --zero 2 --micro-batch 1", "step 1: gradient of final_norm.beta",
               "a part of the sum is missing")]),
    Fault("gradients_not_cleared_before_the_step", SUMS,
          # Without ZeRO, also on the one rank: only stages that empty their buckets differ from it.
          [("b->begin(micros * b->layout.passes);\n    for (auto& view : b->views) view->set_fresh();",
            "b->begin(micros * b->layout.passes);")],
          [Run("--mesh 2x1x1 --zero 2", "step 2: gradient of final_norm.beta")]),
    Fault("slice_of_a_bucket_begins_too_early", DATA,
          [("cut ? dp.rank() * slice : 0;", "cut ? dp.rank() * (slice - 16) : 0;")],
          [Run("--mesh 2x1x1 --zero 2", f"{INITIAL}: moment of tokens.table/m")]),
    Fault("every_rank_starts_with_the_first_slice", DATA,
          [("b.my_weight = b.weight.narrow(0, b.my_first, slice);",
            "b.my_weight = b.weight.narrow(0, 0, slice);")],
          [Run("--mesh 2x1x1 --zero 3", f"{INITIAL}: weight of tokens.table")]),
    Fault("replicas_start_differently", DATA,
          [("model.bind(options.seed);", "model.bind(options.seed + uint64_t(model_.dp.rank()));")],
          [Run("--mesh 2x1x1", f"{INITIAL}: weight on replicas of tokens.table")]),
    Fault("layers_do_not_wait_for_their_weights", GATHERED,
          [("      for (auto* b : unit) b->gathering.wait();\n", "")],
          [Run("--mesh 2x1x1 --zero 1", "step 2: activation (on replicas )?of (embedding|block0)")]),
    Fault("weights_not_published", DATA,
          [("if (model_.options.zero != Zero::optimizer && model_.options.zero != Zero::gradients) return;",
            "if (model_.options.zero != Zero::optimizer) return;")],
          [Run("--mesh 2x1x1 --zero 2", "step 1: weight on replicas of tokens.table"),
           Run("--mesh 2x2x2 --zero 2", "step 1: weight on replicas of tokens.table")]),
    Fault("optimizer_updates_a_stale_copy", SLOTS,
          [(".weight = part(b->my_weight),",
            ".weight = part(b->weight.storage()->present() ? b->my_weight : clone(b->my_weight)),")],
          [Run("--mesh 2x1x1 --zero 3", "step 1: weight of tokens.table")]),
    Fault("part_of_a_matrix_taken_for_all", SLOTS,
          [("    if (replicas) replicas->all_reduce(held).wait();\n", "")],
          [Run("--mesh 2x1x1 --zero 1 --optimizer muon", "step 1: weight of block0.down.weight")]),
    Fault("stale_tied_copy", SLOTS_OF_ALL,
          [("slots() const { return slots_.slots(model_); }",
            "slots() const {\n    auto all = slots_.slots(model_);\n    for (size_t i = all.size(); i-- > 0;)\n"
            "      if (model_.ends && model_.ends->rank() > 0 && slots_.pieces(i)[0].parameter->tied)\n"
            "        all.erase(all.begin() + long(i));\n    return all;\n  }")],
          [Run("--mesh 1x2x1", "step 1: weight on replicas of tokens.table"),
           Run("--mesh 2x2x2 --zero 1", "step 1: weight on replicas of tokens.table")]),
    Fault("decay_of_everything_in_a_slice", SLOTS,
          # Matrices come first, and biases are zero: the first gamma is the first that shows.
          [("b->mine(decays)", "b->mine([&, &at = *b](const nn::Parameter& p) {\n"
            "      return at.my_weight.numel() < at.layout.length || decays(p);\n    })")],
          [Run("--mesh 2x1x1 --zero 1", "step 1: weight of block0.norm1.gamma")]),
    Fault("partial_gradients_not_summed", DATA,
          [("  split_.sum_parts();\n", "")],
          [Run(SEQUENCE, "step 1: gradient on replicas of final_norm.beta")]),
    Fault("tied_ends_not_summed", DATA,
          [("sum_over(*model_.ends, *b);", "{}")],
          [Run("--mesh 1x2x1", "step 1: gradient on replicas of tokens.table"),
           Run("--mesh 2x2x1 --zero 2", "step 1: gradient on replicas of tokens.table")]),
    Fault("tied_copy_counted_twice_in_the_norm", HELD,
          [("bool copy = p.tied && ends && ends->rank() > 0;", "bool copy = false;")],
          [Run("--mesh 1x2x1", "step 1: gradient norm", "a factor of about 1.")]),
    Fault("norm_of_this_ranks_slice", STEP,
          [(VOTE, VOTE_IN % "pp")],
          [Run("--mesh 2x1x1 --zero 1", "step 1: gradient norm on replicas")]),
    Fault("norm_of_all_replicas", HELD,
          [("return !copy && (cuts(p.frozen) || over(p).rank() == 0);", "return !copy;")],
          [Run("--mesh 2x1x1", "step 1: gradient norm", "a factor of about 1.41")]),
    Fault("norm_of_this_stage", STEP,
          [(VOTE, VOTE_IN % "dp")],
          [Run("--mesh 1x2x1", "step 1: gradient norm on replicas")]),

    Fault("tied_weight_without_a_bucket_of_its_own", BUCKETS,
          [("if (p->tied || passes[p] > 1) shared", "if (passes[p] > 1) shared")],
          # On the first stage it is not the first of its bucket: only the last waits for the sum.
          [Run("--mesh 2x2x1 --zero 1", r"exit status 72: .*no progress in group (ends|world) [\s\S]*")]),

    Fault("gathered_ahead_and_not_awaited", GATHERED,
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
    Unseen("unused_parameter_keeps_its_last_gradient", SUMS,
           [("    if (b.views[i]->fresh()) clear(piece.begin, end);\n", "")],
           "every parameter of the GPT is used in every micro-batch",
           "--mesh 2x1x1", "test_parallel", "DataParallelTest.AnyNumber*"),
    Unseen("bucket_with_an_unused_parameter_not_reduced", SUMS,
           [("    while (b->reductions < (rule_.each_pass ? b->due : 1)) reduce(*b);\n", "    {}\n")],
           "every parameter of the GPT is used in every micro-batch",
           "--mesh 2x1x1", "test_parallel", "DataParallelTest.OneRankWithoutData*"),
    Unseen("gradients_all_reduced_where_a_slice_is_used", SUMS,
           [("{.scatters = true, .each_pass = false},", "{.scatters = false, .each_pass = false},")],
           "what is sent too much is right",
           "--mesh 2x1x1 --zero 1", "test_examples", "Sharding.Sends*"),
    Unseen("low_precision_weights_not_published", DATA,
           [("if (model_.options.zero != Zero::optimizer && model_.options.zero != Zero::gradients) return;",
             "if ((model_.options.zero != Zero::optimizer && model_.options.zero != Zero::gradients) ||\n"
             "      model_.options.dtype != f32)\n    return;")],
           "parity runs in fp32",
           "--mesh 2x1x1 --zero 1", "test_examples", "Parity.RandomCombinations"),
    Unseen("decay_reaches_over_a_small_parameter", BUCKETS,
           [("joins = counts;", "joins = counts || (joins && r.end - r.begin <= 16);")],
           "no parameter of a run is that small",
           "--mesh 2x1x1 --zero 2", "test_parallel", "OddParameters.*"),
    Unseen("buckets_that_ranks_do_not_divide", BUCKETS,
           [("b.length = round_up(b.length, align * ranks);", "b.length = round_up(b.length, align);")],
           "two ranks divide every bucket",
           "--mesh 2x1x1 --zero 2", "test_parallel", "OddParameters.*"),
    Unseen("skipping_is_this_ranks_own_decision", NORM,
           [("  m_.all->all_reduce(sums).wait();\n  auto v = sums.to_host<double>();",
             "  double own = sums.to_host<double>().back();\n"
             "  m_.all->all_reduce(sums).wait();\n"
             "  auto v = sums.to_host<double>();\n"
             "  v.back() = own;")],
           "no gradient of a run is infinite",
           "--mesh 1x1x2", "test_examples", "SkippedStep.*"),
    Unseen("overflow_of_copies_has_no_vote", NORM,
           [("  backend(sums).accumulate(rest.narrow(0, last, 1), sums.narrow(0, last, 1));\n", "")],
           "no gradient of a run is infinite",
           "--mesh 1x2x2", "test_examples", "NonFinite.*"),
    Unseen("decay_of_everything", SLOTS,
           [("[](const nn::Parameter& p) { return p.weight_decay || p.decay; }", "[](const nn::Parameter&) { return true; }")],
           "one rank decays everything too",
           "--mesh 2x1x1 --zero 1", "test_examples", "*PyTorch*"),
    Unseen("sums_of_gradients_start_after_backward", SUMS,
           [("    if (!rule_.each_pass) launch_in_order();\n"
             "    else if (bucket->complete > bucket->reductions) reduce(*bucket);\n", "")],
           "what is late is right",
           "--mesh 2x1x1", "test_parallel", "OverlapTest.AStep*"),
    Unseen("weights_not_gathered_ahead", GATHERED,
           [("bool ahead = m_.options.prefetch == DataParallelOptions::Prefetch::next;", "bool ahead = false;")],
           "what is late is right",
           "--mesh 2x1x1 --zero 3", "test_parallel", "OverlapTest.Weights*"),
]
