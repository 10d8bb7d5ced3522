"""Faults of mixtures of experts. Several are what users of other frameworks have reported: gradients of experts summed
over the wrong ranks or scaled by ep, an auxiliary loss that counts once for each rank of tp, capacity and balance of
whatever is in the micro-batch, logits that depend on the samples beside."""

from fault import INITIAL, Fault, Run

ROUTER, MIXTURE, EXCHANGE = (f"parallel/experts/{name}.cpp" for name in ("router", "mixture", "exchange"))
PARAMETER, HELD, SUMS = "nn/parameter.cpp", "parallel/data/buckets/held_model.cpp", "parallel/data/buckets/gradient_sums.cpp"
OPS, MATMUL = "autograd/ops/experts.cpp", "autograd/ops/matmul.cpp"
MODEL = " --experts 8 --balance 0.1 --router-z 0.01"
EP, TP, DP = (f"--mesh {mesh}{MODEL}" for mesh in ("1x1x2x1x1", "1x1x2", "2x1x1"))
EXPERT = r"step 1: gradient (on replicas )?of block\d.experts.(down|gate_up)"
ROUTED = r"step 1: gradient (on replicas )?of block\d.experts.router.weight"


def found(flags, expect, guess=""):
    return Run(flags, expect, guess, program="llama")


FAULTS = [
    Fault("experts_summed_over_ranks_with_others", HELD,
          [("cut.empty() ? dp : mesh->data_without(cut);", "dp;")],
          [found(EP, EXPERT)]),
    Fault("gradients_of_experts_divided_by_ep", SUMS,
          [("  b.reducing.wait();\n", "  b.reducing.wait();\n  if (b.over != &m_.dp) copy_(b.my_sums, b.my_sums * 0.5);\n")],
          [found(EP, EXPERT, "a factor of 1/2")]),
    Fault("norm_counts_the_experts_of_the_first_rank", HELD,
          [("over(p).rank() == 0", "dp.rank() == 0")],
          [found(EP, "step 1: gradient norm")]),
    Fault("norm_counts_experts_once_for_each_replica", HELD,
          [("over(p).rank() == 0)", "&over(p) != &dp || dp.rank() == 0)")],
          [found(f"--mesh 2x1x2x1x1{MODEL}", "step 1: gradient norm")]),
    Fault("experts_of_the_first_rank_on_all", PARAMETER,
          [("before = shard.first * (full.numel() / full[0]);", "before = 0;")],
          [found(EP, f"{INITIAL}: weight of block0.experts.gate_up")]),
    Fault("checkpoints_say_experts_of_the_first_rank", "parallel/train/step/state.cpp",
          [("part.flat_begin = p.shard.first * each, part", "part.flat_begin = 0, part")],
          [found(EP, f"{INITIAL}: weight .*")]),
    Fault("scores_do_not_enter_the_split_stretch", MIXTURE,
          [("tp_.enter(scored.scores)", "tp_.gather_rows(scored.scores)")],
          [found(TP, ROUTED)]),
    Fault("rows_do_not_enter_the_split_stretch", MIXTURE,
          [("routed(tp_.enter(x), chosen", "routed(tp_.gather_rows(x), chosen")],
          [found(TP, "step 1: gradient (on replicas )?of .*")]),
    Fault("auxiliary_loss_once_for_each_rank_of_tp", MIXTURE,
          [("  Router::Chosen chosen = router_.choose(tp_.enter(scored.scores), batch);\n",
            "  scored.scores = tp_.enter(scored.scores);\n"
            "  Router::Chosen chosen = router_.choose(scored.scores, batch);\n")],
          [found(TP.replace(" --router-z 0.01", ""), ROUTED)]),
    Fault("shared_gate_is_alike_on_other_rows", MIXTURE,
          [("nn::LinearOptions{o.std, false, tp.whole()}", "nn::LinearOptions{o.std, false, tp.whole_never_summed()}")],
          [found(TP + " --sequence-parallel --shared-experts 1 --shared-gate",
                 r"step 1: gradient on replicas of block\d.experts.shared_gate.weight")]),
    Fault("balance_of_the_micro_batch", ROUTER,
          [("if (o_.over == RouterOptions::Over::sequence) return f;\n", "")],
          [found(DP, ROUTED)]),
    Fault("auxiliary_loss_not_scaled_as_the_loss", ROUTER,
          [("return attach_loss(y, loss, batch.loss_seed);", "return attach_loss(y, loss, 1. / 16 / double(samples));")],
          [found(DP, ROUTED)]),
    Fault("loss_seed_on_the_last_stage_alone", "parallel/pipeline/pipeline.cpp",
          [("if (records) batch.loss_seed", "if (records && !to) batch.loss_seed")],
          [found(f"--mesh 1x2x1{MODEL}", r"step 1: gradient of block0\..*")]),
    Fault("capacity_of_the_micro_batch", ROUTER,
          [("auto k = size_t(o_.top_k), samples = size_t(batch.input.size(0));",
            "auto k = size_t(o_.top_k), samples = size_t(1);")],
          [found(DP + " --capacity 1", r"step 1: activation of block\d")]),
    Fault("capacity_of_this_ranks_rows", ROUTER,
          [("  sum_over_rows(all, batch);\n  auto most", "  auto most")],
          [found(f"--mesh 1x1x2x1{MODEL} --capacity 1", r"step 1: activation of block\d")]),
    Fault("balance_of_this_ranks_rows", ROUTER,
          [("  sum_over_rows(f, batch);\n", "")],
          [found(f"--mesh 1x1x2x1{MODEL}", ROUTED)]),
    Fault("rows_come_back_in_the_order_of_ranks", MIXTURE,
          [("index_select(y, 0, g.place)", "index_select(y, 0, g.order)")],
          [found(EP, "step 1: activation of block0")]),
    Fault("rows_reach_the_experts_of_another_rank", EXCHANGE,
          [("stretches_.push_back({int64_t(i % experts), first", "stretches_.push_back({int64_t((i + 1) % experts), first")],
          [found(f"--mesh 1x1x4x1x1{MODEL}", r"step 1: activation of block\d")]),
    Fault("biases_by_the_counts_of_this_replica", "parallel/train/model/buffers.cpp",
          [("  if (data_.size() > 1) data_.all_reduce(sums_).wait();\n", "")],
          [found(EP + " --balance-bias 0.01", r"step 1: buffer (on replicas )?of block\d.experts.router.(load|bias)")]),
    Fault("a_weight_without_rows_keeps_its_gradient", MATMUL,
          [("      if (!written[size_t(e)]) fill_(weight_of(dw.to, e), 0);\n", "      (void)e;\n")],
          [found("--mesh 1x1x2x1x1 --experts 64 --micro-batch 1 --zero 2", r"step \d: gradient .*")]),
    Fault("rows_of_a_part_rounded_with_others", MIXTURE,
          [("parts = batch.row_parts;", "parts = 1;")],
          [found("--mesh 1x1x2x1 --experts 8 --cp-form heads --bitwise --row-parts 4", r"step 1: gradient of .*experts.*")]),
]
