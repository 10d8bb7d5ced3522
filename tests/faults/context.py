"""Faults of context parallelism: rows of a sample on several ranks. Several are what users of other frameworks have
reported: keys whose gradients do not come home, softmaxes of a block taken for those of a row, stale keys, rows in
another order than their positions."""

from fault import Fault, Run

FORMS, RING, GATHER, HEADS, CONTEXT = (f"parallel/context/{name}.cpp"
                                       for name in ("forms", "ring", "gather", "heads", "context_parallel"))
PLAIN, GATHERED, BY_HEADS = "--mesh 1x1x2x1", "--mesh 1x1x2x1 --cp-form gather", "--mesh 1x1x2x1 --cp-form heads"
QKV = r"step 1: gradient of block\d.qkv.(weight|bias)"

FAULTS = [
    Fault("gradients_of_keys_do_not_come_home", RING,
          [("  backend(home).accumulate(following, home);\n", "")],
          [Run(PLAIN, QKV), Run(PLAIN, QKV, program="llama")]),
    Fault("gradients_of_keys_stop_at_the_next_rank", RING,
          [("if (turn > 1) backend(part).accumulate(following, part);", "")],
          [Run("--mesh 1x1x4x1", QKV)]),
    Fault("softmax_of_a_block_taken_for_that_of_the_row", RING,
          [("backend(q).attention_backward(a, of(kept[0]), of(kept[1]), of(kept[2]), d);",
            "Tensor y = clone(of(kept[0])), lse = clone(of(kept[1]));\n    backend(q).attention(a, y, lse);\n"
            "    backend(q).attention_backward(a, of(kept[0]), lse, of(kept[2]), d);")],
          [Run(PLAIN, QKV)]),
    Fault("outputs_of_blocks_taken_for_those_of_the_row", RING,
          [("backend(q).attention_backward(a, of(kept[0]), of(kept[1]), of(kept[2]), d);",
            "Tensor y = clone(of(kept[0])), lse = clone(of(kept[1]));\n    backend(q).attention(a, y, lse);\n"
            "    backend(q).attention_backward(a, y, of(kept[1]), of(kept[2]), d);")],
          [Run(PLAIN, QKV)]),
    Fault("stale_keys_after_the_second_turn", RING,
          [("      kv = coming;\n", "      if (turn == 0) kv = coming;\n")],
          [Run("--mesh 1x1x4x1", "step 1: activation of block0")]),
    Fault("blocks_joined_by_halves", RING,
          [("rows * share(0) + y.to(y_.dtype()).view(rows.shape()) * share(1)",
            "(rows + y.to(y_.dtype()).view(rows.shape())) * 0.5")],
          [Run(PLAIN, "step 1: activation of block0")]),
    Fault("rows_in_another_order_than_their_positions", CONTEXT,
          [("zigzag(ranks, rank, all / ranks)",
            "std::vector<nn::Span>{{rank * (all / ranks), all / ranks}}")],
          [Run(PLAIN, "step 1: activation of embedding")]),
    Fault("dropout_of_a_block_by_its_own_keys", FORMS,
          [("  here.column += keys.first;\n", "")],
          [Run(PLAIN, "step 1: activation of block0")]),
    Fault("dropout_of_a_block_by_its_own_queries", FORMS,
          [("sample * all() + queries.first;", "sample * all();")],
          [Run(PLAIN, "step 1: activation of block0")]),
    Fault("causal_blocks_see_as_if_they_began_alike", FORMS,
          [("int64_t ahead = queries.first - keys.first;", "int64_t ahead = 0;")],
          [Run(PLAIN, "step 1: activation of block0"), Run(GATHERED, "step 1: activation of block0")]),
    Fault("gathered_keys_in_order_of_ranks", FORMS,
          [("{ copy_(here, of_rank); }", "{ static int64_t n = 0; if (n++ % 2) copy_(here, of_rank); }")],
          [Run(GATHERED, "step 1: activation of block0", program="llama")]),
    Fault("gradients_of_later_queries_lost", GATHER,
          [("    add(d.v, sums.of(1, i, keys));\n", "    if (here.first == 0) add(d.v, sums.of(1, i, keys));\n")],
          [Run(GATHERED, QKV)]),
    Fault("dropout_of_other_heads", HEADS,
          [("  mask.column += r.cp.rank() * mine * group * r.all();\n", "")],
          [Run(BY_HEADS, "step 1: activation of block0")]),
    Fault("gradients_summed_over_samples_alone", "parallel/mesh.cpp",
          [('data_ = data == samples ? dp_ : &over(data);', "data_ = dp_;")],
          [Run(PLAIN, "step 1: gradient on replicas of .*"), Run("--mesh 2x1x2x1 --zero 2", "step 1: gradient .*")]),
    Fault("rotary_positions_of_the_first_rank", "nn/rotary.h",
          [("all.narrow(0, s.first, s.count)", "all.narrow(0, s.first % s.count, s.count)")],
          [Run(PLAIN, "step 1: activation of block0", program="llama")]),
    Fault("rows_of_a_rank_rounded_at_once", "parallel/train/step/replica.cpp",
          [("             .row_parts = o.row_parts_here(),\n", "")],
          [Run(BY_HEADS + " --bitwise --row-parts 4 --micro-batch 1", "step 1: gradient of .*")]),
]
